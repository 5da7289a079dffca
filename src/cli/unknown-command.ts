/** What is said of a command that there is none of. */
import { stat } from 'node:fs/promises';
import { closestName } from '../did-you-mean.js';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';

const NO_LIST =
  'kvant keeps no list of models: they are folders of yours, or lie in the Hugging Face cache. `kvant inspect MODEL` tells of one, and `/v1/models` what a server serves.';

/** What other tools call it, and what kvant has instead. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  version: '`kvant --version` prints the version.',
  v: '`kvant --version` prints the version.',
  list: NO_LIST,
  ls: NO_LIST,
  models: NO_LIST,
  ps: 'While `kvant serve` runs, `/v1/models` and `/health` say what it serves.',
  rm: 'Models lie in the Hugging Face cache: delete their folder there (`kvant pull MODEL` prints it).',
  show: 'Did you mean `kvant inspect`?',
  info: 'Did you mean `kvant inspect`?',
  start: 'Did you mean `kvant serve`?',
  server: 'Did you mean `kvant serve`?',
  api: 'Did you mean `kvant serve`?',
  complete: 'Did you mean `kvant generate`?',
  prompt: 'Did you mean `kvant generate`?',
  ask: 'Did you mean `kvant generate`?',
  download: 'Did you mean `kvant pull`?',
  fetch: 'Did you mean `kvant pull`?',
  get: 'Did you mean `kvant pull`?',
  convert: 'Did you mean `kvant quantize`?',
  benchmark: 'Did you mean `kvant bench`?',
  test: 'Did you mean `kvant bench` or `kvant eval`?',
};

/**
 * @param known commands, with their other names
 * @example await unknownCommand('srve', ['serve', 'chat']) // … Did you mean `kvant serve`?
 */
export async function unknownCommand(name: string, known: readonly string[]): Promise<KvantError> {
  return new KvantError('unknown-command', `There is no command ${JSON.stringify(shown(name))}.`, {
    kind: 'invalid-request',
    where: shown(name),
    fix: (await meant(name, known)) ?? `The commands are: ${known.join(', ')}. See kvant --help.`,
  });
}

async function meant(name: string, known: readonly string[]): Promise<string | undefined> {
  const lower = name.toLowerCase();
  if (Object.hasOwn(ELSEWHERE, lower)) return ELSEWHERE[lower];
  const begun = lower.length > 1 ? known.filter((command) => command.startsWith(lower)) : [];
  const close = begun.length === 1 ? begun[0] : closestName(name, [...known, 'list', 'version']);
  if (close !== undefined) return ELSEWHERE[close] ?? `Did you mean \`kvant ${close}\`?`;
  // `kvant org/name`: the command was left out.
  const isModel =
    /^[\w.-]+\/[\w.-]+(@\S+)?$/.test(name) || (await stat(name).catch(() => undefined))?.isDirectory();
  return isModel ? `Say what to do with it: \`kvant chat ${name}\` or \`kvant serve ${name}\`.` : undefined;
}
