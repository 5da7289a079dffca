/** Something that whoever loads a model should know: a log entry. */
export interface Notice {
  /** Default: a warning. */
  readonly level?: 'info';
  /** The same words every time. */
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}
