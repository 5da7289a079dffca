/** A part of a tokenizer definition that contradicts another, or is damaged; other errors mean that it is not known. */
export class BrokenDefinition extends Error {
  override readonly name = 'BrokenDefinition';
}
