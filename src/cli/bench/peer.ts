/** Figures of another engine that a file holds, and which of them belongs beside a case. */
import { readFile } from 'node:fs/promises';
import { KvantError } from '../../errors.js';

/** One case as the peer measured it, tokens a second of all rows. */
export interface PeerResult {
  readonly rows: number;
  /** Null where the file does not say. */
  readonly prompt: number | null;
  /** The peer's name of the format of its cache: `f16`, `q8_0`, `q4_0`. */
  readonly kv: string | null;
  readonly prefill: number | null;
  readonly decode: number | null;
}

const FIX =
  'Give what a peer’s bench printed: a line {"N": 1, "P": 512, "kv": "f16", "prefill_tok_s": 40300, "decode_tok_s": 439} for each case ' +
  '(N rows, P tokens of a prompt), or an array of {"rows", "prompt", "prefillTokensPerSecond", "decodeTokensPerSecond"}.';

/**
 * Errors: `peer-file-missing`; `peer-file-invalid`, for a file that holds no figures.
 */
export async function readPeerFile(path: string): Promise<PeerResult[]> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    throw new KvantError('peer-file-missing', `${path} cannot be read.`, {
      kind: 'not-found',
      where: '--peer',
      fix: 'Name a file with the peer’s figures.',
      cause,
    });
  }
  return parsePeer(text, path);
}

/** `where` names the file in errors. Lines that are not JSON are the peer's words, and passed over. */
export function parsePeer(text: string, where: string): PeerResult[] {
  const results = values(text, where).flatMap((value) => resultOf(value, where));
  if (results.length === 0) throw invalid(where, 'holds no figures');
  return results;
}

function values(text: string, where: string): unknown[] {
  try {
    const whole: unknown = JSON.parse(text);
    if (Array.isArray(whole)) return whole;
    const { results } = (whole ?? {}) as { readonly results?: unknown };
    return Array.isArray(results) ? results : [whole];
  } catch {
    return text.split('\n').flatMap((line, i): unknown[] => {
      if (!line.trimStart().startsWith('{')) return [];
      try {
        return [JSON.parse(line)];
      } catch {
        throw invalid(where, `has a broken line ${i + 1}`);
      }
    });
  }
}

/** None for a case that the peer could not run. */
function resultOf(value: unknown, where: string): PeerResult[] {
  if (typeof value !== 'object' || value === null) throw invalid(where, `holds ${JSON.stringify(value)}`);
  const fields = value as Readonly<Record<string, unknown>>;
  if (fields.err !== undefined) return [];
  const number = (...names: string[]): number | null => {
    const name = names.find((one) => fields[one] !== undefined && fields[one] !== null);
    if (name === undefined) return null;
    const found = fields[name];
    if (typeof found !== 'number' || !(found > 0))
      throw invalid(where, `has ${name} ${JSON.stringify(found)}`);
    return found;
  };
  const rows = number('N', 'rows');
  const prefill = number('prefill_tok_s', 'prefillTokensPerSecond');
  const decode = number('decode_tok_s', 'decodeTokensPerSecond');
  if (rows === null || (prefill === null && decode === null))
    throw invalid(where, `has a case without rows or figures: ${JSON.stringify(value).slice(0, 80)}`);
  const kv = typeof fields.kv === 'string' ? fields.kv : null;
  return [{ rows, prompt: number('P', 'prompt'), kv, prefill, decode }];
}

function invalid(where: string, what: string): KvantError {
  return new KvantError('peer-file-invalid', `${where} ${what}.`, {
    kind: 'invalid-request',
    where: '--peer',
    fix: FIX,
  });
}

/** Errors: `peer-no-match`, before minutes are spent, where the file has none of the cases asked for. */
export function requireMatch(peer: readonly PeerResult[], rows: readonly number[], prompt: number): void {
  if (peer.some((one) => rows.includes(one.rows) && fits(one, prompt))) return;
  const has = [...new Set(peer.map((one) => `${one.rows} × ${one.prompt ?? 'any'}`))].join(', ');
  throw new KvantError(
    'peer-no-match',
    `The peer’s file has no figures for ${rows.join(', ')} rows and prompts of ${prompt}.`,
    {
      kind: 'invalid-request',
      where: '--peer',
      fix: `It has rows × prompt: ${has}. Set --rows and --prompt.`,
    },
  );
}

/** The peer's best of the case, on a cache of about so many bits as ours: nobody is compared with a first, cold run. */
export function peerOf(
  peer: readonly PeerResult[],
  of: 'prefill' | 'decode',
  rows: number,
  prompt: number,
  kv: string,
): number | null {
  const rates = peer
    .filter((one) => one.rows === rows && fits(one, prompt) && (one.kv === null || one.kv === peerKv(kv)))
    .flatMap((one) => one[of] ?? []);
  return rates.length === 0 ? null : Math.max(...rates);
}

function fits({ prompt }: PeerResult, asked: number): boolean {
  return prompt === null || prompt === asked;
}

/** The peer's cache that is next in size to ours: of 8 bits, of 4, or of floats. */
export function peerKv(format: string): string {
  const bits = Number(/^[a-z]+([\d.]+)/.exec(format)?.[1] ?? 16);
  if (/^f\d/.test(format) || bits > 8) return 'f16';
  return bits > 4 ? 'q8_0' : 'q4_0';
}
