/** Where the text side of a model comes from: a thread of its own makes itself another. */
export type TextOrigin =
  /** A folder, or a GGUF file. */
  { readonly kind: 'folder'; readonly path: string } | { readonly kind: 'stand-in'; readonly vocab: number };
