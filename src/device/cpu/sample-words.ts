/**
 * Numbers of the sampler that TypeScript and AssemblyScript share. All offsets are in words of four bytes unless a name
 * says bytes.
 */

/** Bits of a row's `features`: FEATURE of ../sampling.ts. */
export const F_MASK = 0x1;
export const F_BIAS = 0x2;
export const F_BANNED = 0x4;
export const F_MIN_TOKENS = 0x8;
export const F_REPETITION = 0x10;
export const F_COUNTS = 0x20;
export const F_DRY = 0x40;
export const F_MIROSTAT = 0x80;
export const F_TYPICAL = 0x100;
export const F_SIGMA = 0x200;
export const F_XTC = 0x400;
export const F_FORCED = 0x800;
export const F_LOGPROBS = 0x1000;
export const F_PROCESSED = 0x2000;
/** Features that change logits. */
export const F_PENALTIES = 0x7f;
/** Those of them that one thread does for a row; a mask is shared by chunks. */
export const F_LISTS = 0x7e;

/** Features whose steps bring records. */
export const RECORDS = 0x1080;

/**
 * What a step's rows want, all together: their features, and these bits. A command is passed over, barrier and all,
 * when no row wants it.
 */
export const WANTS_DRAW = 0x10000;
/** Top-k or top-p. */
export const WANTS_PREFIX = 0x20000;
/** Log-probabilities of logits that penalties are about to change. */
export const WANTS_RAW = 0x40000;

/** Places of the columns of SAMPLING_FIELDS (../sampling-inputs.ts). */
export const P_TEMPERATURE = 0;
export const P_TOP_K = 1;
export const P_TOP_P = 2;
export const P_MIN_P = 3;
export const P_SEED_LOW = 4;
export const P_SEED_HIGH = 5;
export const P_CHOICE = 6;
export const P_POSITION = 7;
export const P_FEATURES = 8;
export const P_TYPICAL_P = 9;
export const P_TOP_N_SIGMA = 10;
export const P_XTC_PROBABILITY = 11;
export const P_XTC_THRESHOLD = 12;
export const P_MIROSTAT_TAU = 13;
export const P_MIROSTAT_ETA = 14;
export const P_REPETITION_PENALTY = 15;
export const P_FREQUENCY_PENALTY = 17;
export const P_PRESENCE_PENALTY = 18;
export const P_DRY_MULTIPLIER = 19;
export const P_DRY_LOG_BASE = 20;
export const P_DRY_ALLOWED_LENGTH = 21;
export const P_TOP_LOGPROBS = 23;
export const P_FORCED = 24;

/** A record in a step's result: RECORD_WORDS of ../sampling.ts and what lies where. */
export const R_WORDS = 44;
export const R_RANK = 1;
export const R_MU = 2;
export const R_COUNT = 3;
export const R_IDS = 4;
export const R_LOGPROBS = 24;
export const MOST_LOGPROBS = 20;

/**
 * The head of a slot's state; 0 in an address means that there is none. The arrays follow it.
 */
export const S_MU = 0;
/** Tokens there is room for. */
export const S_CAPACITY = 1;
/** `[capacity]` the tokens themselves. */
export const S_HISTORY = 2;
/** `[words of the vocabulary]` */
export const S_MASK = 3;
/** Ids, ascending; then as many values. */
export const S_BIAS = 4;
export const S_BIAS_COUNT = 5;
export const S_WITHHELD = 6;
export const S_WITHHELD_COUNT = 7;
/** Sequences: length, ids, length, ids … */
export const S_BANNED = 8;
export const S_BANNED_COUNT = 9;
/** `[vocab]` where an id's entry is, plus one; 0: it has none. */
export const S_INDEX = 10;
/** One entry for every id that has come. */
export const S_ENTRIES = 11;
export const S_ENTRY_COUNT = 12;
/** Tokens that repetition looks back on; 0: all. */
export const S_WINDOW = 13;
/** `L(d)` by d (../sampling.ts): room for S_DRY_WINDOW or the capacity, and three more. */
export const S_MATCHES = 14;
/** Tokens that the matches take into account. */
export const S_MATCHED = 15;
export const S_DRY_WINDOW = 16;
/** Tokens since the last breaker. */
export const S_SINCE = 17;
/** Ids, ascending. */
export const S_BREAKERS = 18;
export const S_BREAKER_COUNT = 19;
/** As the banned ones. */
export const S_BREAKING = 20;
export const S_BREAKING_COUNT = 21;
/** `[vocab]` the logits before penalties, for log-probabilities. */
export const S_RAW = 22;
export const S_WORDS = 32;

/** An entry: id, times seen in the window, times generated, and the length of its match in the step at hand. */
export const E_ID = 0;
export const E_SEEN = 1;
export const E_GENERATED = 2;
export const E_MATCH = 3;
export const E_WORDS = 4;

/** Logits of a chunk, the piece of a row that one thread takes, and of a block, whose largest is noted. */
export const CHUNK = 4096;
export const BLOCK = 128;
/** Logits whose histogram is one. */
export const SPAN = 16384;
export const BINS = 128;

/** Bytes of what the passes note: of a chunk, of a row, of a histogram, and of a chunk's log-probabilities. */
export const PART_BYTES = 64;
export const BOUNDS_BYTES = 64;
/** A weight and a count for each bin, both f64, and for tokens that are not in question. */
export const HISTOGRAM_BYTES = (BINS + 1) * 16;
export const TOP_BYTES = 192;
/** Bins of the search for a threshold. */
export const RADIX = 2048;

/** The parameters of all commands of the sampler: words. */
export const W_LOGITS = 0;
export const W_VOCAB = 1;
export const W_ROWS_AT = 2;
export const W_SAMPLING = 3;
export const W_SAMPLING_STRIDE = 4;
export const W_CHUNKS = 5;
export const W_PARTS = 6;
export const W_BLOCKS = 7;
export const W_BOUNDS = 8;
export const W_HISTOGRAMS = 9;
export const W_TOPS = 10;
/** Lists of a thread. */
export const W_LISTS = 11;
export const W_LISTS_STRIDE = 12;
/** The ids, then the records. */
export const W_RESULT = 13;
export const W_OUTPUT_SLOTS = 14;
/** `[slots]` the address of a slot's state or 0. */
export const W_STATES = 15;
export const W_SLOTS = 16;
/** Which of its jobs a command is to do. */
export const W_JOB = 17;
export const W_WORDS = 18;

/** Jobs of OP_SAMPLE, in the order of their commands: by chunk or histogram of a row, or by row. */
export const JOB_RAW = 0;
export const JOB_MASK = 1;
export const JOB_ADJUST = 2;
export const JOB_SCAN = 3;
export const JOB_HISTOGRAM = 4;
export const JOB_PREFIX = 5;
export const JOB_MOMENTS = 6;
export const JOB_DEVIATIONS = 7;
export const JOB_SHAPE = 8;
export const JOB_REST = 9;
export const JOB_XTC = 10;
export const JOB_DRAW = 11;
export const JOB_FINISH = 12;
export const JOB_RANK = 13;
export const JOB_RECORD = 14;
