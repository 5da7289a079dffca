/**
 * The commands of the CPU device. Read by TypeScript and by AssemblyScript alike, so it holds numbers only.
 *
 * A command in memory is a head of four u32 words `[opcode, bytes to the next command, wantsAt, wants]` and its
 * parameters, padded to a multiple of 16 bytes. Where `wants` is not 0 and has no bit in common with the word at
 * `wantsAt`, the command is passed over. Every thread runs every other, takes its share of it and meets the others
 * before the next one begins. `kernel(params, thread, threads)` gets the address of the first parameter.
 */
export const OP_QUANTIZE_ROWS = 1;
export const OP_LINEAR = 2;
export const OP_EMBED = 3;
export const OP_RMS_NORM = 4;
export const OP_ROPE_APPEND = 5;
export const OP_ATTEND = 6;
export const OP_ATTEND_MERGE = 7;
export const OP_GLU = 8;
export const OP_ADD = 9;
export const OP_SELECT_OUTPUTS = 10;
/** One of the jobs of sample-words.ts. */
export const OP_SAMPLE = 11;
/** See kv-convert.ts. */
export const OP_CONVERT = 12;
/** See kv-copy.ts. */
export const OP_COPY_BLOCKS = 13;
/** Traps. For the test that a trap fails the steps under way and never hangs. */
export const OP_TRAP = 14;
export const OP_SCALE = 15;
export const OP_NORM = 16;
export const OP_ACT = 17;
export const OP_ROUTE = 18;
export const OP_ROTATE = 19;
export const OP_ATTEND_SEGMENTS = 20;
export const OP_EXPERT_PAIRS = 31;
export const OP_EXPERT_ROWS = 32;
export const OP_EXPERT_LINEAR = 33;
export const OP_EXPERT_SUM = 34;
export const OP_HEAD_LINEAR = 35;
export const OP_SHORT_CONV = 41;
export const OP_GATED_DELTA = 42;
export const OP_GATE = 43;
export const OP_SELECTIVE_SCAN = 44;
export const OP_COLUMNS = 45;
export const OP_ADD_FEATURES = 51;
export const OP_ADD_GATHERED = 52;
export const OP_CLAMP = 53;

/**
 * Control words at this address of every memory (static data of the kernels lies below). Byte offsets from it; words
 * that different threads write lie on cache lines of their own.
 */
export const CONTROL = 61440;
export const BARRIER_ARRIVED = 0;
export const BARRIER_EPOCH = 64;
export const BARRIER_SLEEPERS = 128;
/** Not 0: a thread has died; whoever waits gives up. */
export const POISON = 192;
/** Turns a waiting thread spins before it sleeps. */
export const SPIN_TURNS = 256;
/** The rest is used in the first memory only. */
export const SUBMITTED = 320;
export const RETIRED = 384;
export const RING = 512;
/** Steps that may be queued on the device, all programs together. Entries of four words. */
export const RING_ENTRIES = 64;
export const HEAP = 65536;

/**
 * The step as kernels see it: word offsets from the step's address. `rowsAt` of a kernel is the address of one of the
 * counts. The arrays follow in the order of stepLayout (step-layout.ts).
 */
export const STEP_TOKENS = 0;
export const STEP_SEQUENCES = 1;
export const STEP_OUTPUTS = 2;
/** What the rows want of the sampler, all together: bits of sample-words.ts. */
export const STEP_WANTS = 3;
/**
 * The inputs of a conversion or a copy of blocks (block-program.ts), where a step's would be: no rows, a count of blocks,
 * two lists of them.
 */
export const BLOCKS_COUNT = 4;
export const BLOCKS_LISTS = 8;
