/** What a kind of KV format says of itself, alike on every device. How a device stores and reads it is its own codec's. */

/** How one K or V vector of `head_dim` values is stored: plain data, of a kind in the list (list.ts). */
export interface KvFormatData {
  readonly kind: string;
}

/** Formats of K and of V. */
export interface KvPair<F extends KvFormatData = KvFormatData> {
  readonly key: F;
  readonly value: F;
}

/** How options such as `--kv-bits 4` name a format of the kind. */
export interface KvBitsScheme<F extends KvFormatData = KvFormatData> {
  /** The value of `--kv-quant-scheme`. */
  readonly name: string;
  /** Its name in errors. */
  readonly title: string;
  readonly bits: readonly number[];
  /** Numbers of values that can share a scale; empty where nothing is shared. */
  readonly groups: readonly number[];
  /** Whether half bits are possible: K takes the lower whole number, V the higher. */
  readonly halves: boolean;
  /** Undefined where there is no such width or group. */
  of(bits: number, group: number): F | undefined;
}

/** A kind of KV format: its names, sizes and limits. */
export interface KvFormatKind<F extends KvFormatData = KvFormatData> {
  readonly kind: F['kind'];
  /** Vectors are kept as numbers, of any head_dim: the formats of layers that are not quantised. */
  readonly float: boolean;
  /** Vectors are rotated before they are coded, so that all dims have the same error. Default: they are not. */
  readonly rotates?: true;
  /** Patterns of the names, for help and errors. */
  readonly names: readonly string[];
  /** The format that `name` stands for; undefined for other names. */
  parse(name: string): F | undefined;
  name(format: F): string;
  /** Short names for K and V apart. */
  readonly pairs?: {
    readonly names: readonly string[];
    parse(name: string): KvPair<F> | undefined;
    name(pair: KvPair<F>): string | undefined;
  };
  readonly scheme?: KvBitsScheme<F>;
  /** Bytes of the values or codes of one vector: whole 32-bit words. */
  codeBytes(format: F, headDim: number): number;
  /** Bytes that go with the codes of one token over all KV heads of a layer, padding included: whole 32-bit words. */
  metaBytes(format: F, headDim: number, kvHeads: number): number;
  /** Why a layer of this head_dim cannot have the format, worded to follow "it stays float: "; undefined where it can. */
  unusable(format: F, headDim: number): string | undefined;
  /** The same of a layer that keeps latents, of `headDim` numbers: V is a view of the vector, read from the middle on. Absent: no latent can. */
  unusableLatent?(format: F, headDim: number): string | undefined;
}
