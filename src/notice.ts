/** Something that whoever loads a model should know: a log entry without its level. */
export interface Notice {
  /** The same words every time. */
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}
