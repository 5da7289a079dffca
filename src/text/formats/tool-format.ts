/** What a format of tool calls is made of. There is one file for each format in this folder, and a list of them in formats.ts. */

/** What a piece of an answer brings. */
export type ToolPiece =
  | { readonly type: 'text'; readonly text: string }
  /** A call begins; `arguments`: as much of their JSON text as is known. */
  | { readonly type: 'call'; readonly name: string; readonly arguments: string }
  /** More of the arguments of the call that began last. */
  | { readonly type: 'arguments'; readonly text: string };

/**
 * Reads one answer. Text is given out as soon as it can be no call, a call once its name is known. What is no call stays
 * text. The pieces in which the answer arrives make no difference to what comes out.
 */
export interface ToolCallParser {
  push(text: string): ToolPiece[];
  /** The answer is over: what was held back. */
  end(): ToolPiece[];
}

/** The way in which a family of models writes tool calls. */
export interface ToolFormat {
  /** As users name it. */
  readonly name: string;
  /** Whether a chat template, given its source, has models write calls so. */
  detect(template: string): boolean;
  /** A parser for one answer. */
  parser(): ToolCallParser;
}
