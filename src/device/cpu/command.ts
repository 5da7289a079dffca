/** One kernel launch: which kernel, and its parameters as u32 words (see opcodes.ts). */
export interface Command {
  readonly opcode: number;
  readonly words: readonly number[];
  /** Address of a word, and bits: without one of them in that word the command is passed over. */
  readonly wanted?: { readonly at: number; readonly bits: number };
}

const f32 = new Float32Array(1);
const u32 = new Uint32Array(f32.buffer);

/** The bits of an f32 parameter. */
export function f32Word(value: number): number {
  f32[0] = value;
  return u32[0]!;
}

const HEAD_WORDS = 4;

/** Words that a list of commands takes in memory. */
export function commandWords(commands: readonly Command[]): number {
  let words = 0;
  for (const { words: own } of commands) words += paddedWords(own.length);
  return words;
}

/** Words of such a list before each of its commands. */
export function commandStarts(commands: readonly Command[]): Uint32Array {
  const starts = new Uint32Array(commands.length);
  for (let i = 1; i < commands.length; i++)
    starts[i] = starts[i - 1]! + paddedWords(commands[i - 1]!.words.length);
  return starts;
}

/** Writes a list of commands as the kernels read it. */
export function writeCommands(to: Uint32Array, commands: readonly Command[]): void {
  let at = 0;
  for (const { opcode, words, wanted } of commands) {
    const size = paddedWords(words.length);
    to.fill(0, at, at + size);
    to[at] = opcode;
    to[at + 1] = size * 4;
    to[at + 2] = wanted?.at ?? 0;
    to[at + 3] = wanted?.bits ?? 0;
    to.set(words, at + HEAD_WORDS);
    at += size;
  }
}

function paddedWords(parameters: number): number {
  return HEAD_WORDS + Math.ceil(parameters / 4) * 4;
}
