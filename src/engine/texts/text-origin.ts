/** Files of a model's text side. */
export interface TextPlace {
  /** A folder, or a GGUF file. */
  readonly path: string;
  /** A folder or GGUF file that tokenizer and chat template come from instead. */
  readonly tokenizer?: string;
}

/** Files of a model. */
export interface ModelPlace extends TextPlace {
  /** A GGUF file of what sees for a GGUF model, where it was asked for. */
  readonly mmproj?: string;
}

/** Where the text side of a model comes from: a thread of its own makes itself another. */
export type TextOrigin =
  | ({ readonly kind: 'folder' } & TextPlace)
  | { readonly kind: 'stand-in'; readonly vocab: number };
