/** The API keys of `kvant serve`: from flags, the environment and a file, and read again when told to. */
import type { Command } from 'commander';
import { KvantError } from '../errors.js';
import type { ApiKey, ApiKeys } from '../server/index.js';
import { integer } from './flag-numbers.js';
import type { LoadLog } from './log.js';
import { Option } from './option.js';

export interface KeyFlags {
  readonly apiKey?: readonly string[];
  readonly apiKeyFile?: string;
  readonly adminKey?: readonly string[];
  readonly maxPriority?: number;
  readonly prefixCacheShared?: boolean;
}

/** Where keys are looked for that no flag gives. */
export const KEY_VARIABLES = ['KVANT_API_KEY', 'KVANT_API_KEY_FILE', 'KVANT_ADMIN_KEY'] as const;

const collect = (text: string, before: readonly string[] = []): string[] => [...before, text];

export function addKeyFlags(command: Command): void {
  // The variables are read below: what commander finds wrong it prints, and these are secrets.
  command
    .option(
      '--api-key <key>',
      'clients must send it as a bearer token; may be given several times. Others see it in the list of processes: better a file, or KVANT_API_KEY (a list with commas)',
      collect,
    )
    .option(
      '--api-key-file <file>',
      'keys as JSON lines: {"name", "key" or "sha256", "priority", "admin"}; read again on SIGHUP (env: KVANT_API_KEY_FILE)',
    )
    .option(
      '--admin-key <key>',
      'key that /metrics and /v1/cache want, and that may do all else (env: KVANT_ADMIN_KEY)',
      collect,
    )
    .option(
      '--max-priority <n>',
      'highest priority that requests may ask for whose key does not say (default: 0 with keys, 10 without)',
      integer(-10, 10),
    )
    .addOption(
      new Option(
        '--prefix-cache-shared',
        'let keys share cached prefixes: it shows what other keys have asked',
      ),
    );
}

export interface ServeKeys {
  /** Undefined: everybody may do everything. */
  readonly keys: ApiKeys | undefined;
  /** Requests without a key are answered. */
  readonly anonymous: boolean;
  /** Reads the file again. What is wrong with it goes to the log, and the keys stay as they were. */
  reload(): Promise<void>;
}

/** Errors: `api-key-empty`, `invalid-api-keys`, and those of `readKeyFile`. */
export async function openKeys(
  flags: KeyFlags,
  log: LoadLog,
  env: NodeJS.ProcessEnv = process.env,
): Promise<ServeKeys> {
  const plain = flags.apiKey ?? list(env, 'KVANT_API_KEY');
  const admin = flags.adminKey ?? list(env, 'KVANT_ADMIN_KEY');
  const path = flags.apiKeyFile ?? env.KVANT_API_KEY_FILE;
  if (path?.trim() === '')
    throw empty(flags.apiKeyFile === undefined ? 'KVANT_API_KEY_FILE' : '--api-key-file');
  requireKeys('--api-key', plain);
  requireKeys('--admin-key', admin);
  if (plain === undefined && admin === undefined && path === undefined)
    return {
      keys: undefined,
      anonymous: true,
      reload: async () => log.info({}, 'SIGHUP: there is no key file to read again'),
    };
  const { ApiKeys, readKeyFile } = await import('../server/index.js');
  const others: readonly ApiKey[] = [
    ...(plain ?? []).map((key) => ({ key })),
    ...(admin ?? []).map((key) => ({ key, admin: true, name: 'admin' })),
  ];
  /** What a file says of a key counts before what the command line says. */
  const all = async (): Promise<ApiKey[]> => {
    if (path === undefined) return [...others];
    const { keys, warnings } = await readKeyFile(path);
    for (const warning of warnings) log.warn({ file: path }, warning);
    return [...keys, ...others];
  };
  const anonymous = plain === undefined && path === undefined;
  const { maxPriority } = flags;
  const keys = new ApiKeys(await all(), { anonymous, ...(maxPriority === undefined ? {} : { maxPriority }) });
  log.info({ keys: keys.size, ...(path === undefined ? {} : { file: path }) }, 'API keys read');
  let last = Promise.resolve();
  const reload = async (): Promise<void> => {
    if (path === undefined) return log.info({}, 'SIGHUP: there is no key file to read again');
    try {
      keys.replace(await all());
      log.info({ keys: keys.size, file: path }, 'API keys read again');
    } catch (error) {
      const { code, fix } = error instanceof KvantError ? error : { code: 'internal', fix: undefined };
      log.error({ code, fix, file: path }, `the API keys stay as they were: ${(error as Error).message}`);
    }
  };
  return {
    keys,
    anonymous,
    reload: () => {
      last = last.then(reload);
      return last;
    },
  };
}

/** `a,b` or one a line. A bearer token has no commas and no spaces. */
function list(env: NodeJS.ProcessEnv, name: (typeof KEY_VARIABLES)[number]): string[] | undefined {
  const text = env[name];
  if (text === undefined) return undefined;
  const keys = text.split(/[\s,]+/).filter((key) => key !== '');
  if (keys.length === 0) throw empty(name);
  return keys;
}

/** An empty key would look like a lock and be none. */
function requireKeys(flag: string, keys: readonly string[] | undefined): void {
  if (keys?.some((key) => key.trim() === '')) throw empty(flag);
}

function empty(where: string): KvantError {
  return new KvantError('api-key-empty', `${where} is empty.`, {
    kind: 'invalid-request',
    where,
    fix: 'Give a key, or leave it out to serve without one.',
  });
}
