/** The tags of a format. */
export interface TagStyle {
  /** Before an argument's name. */
  readonly open: string;
  /** Behind the name, up to the value. */
  readonly named: readonly string[];
  /** Between that and the value, white space apart. */
  readonly value?: string;
  /** Behind the value. */
  readonly close: string;
  /** Behind the last argument. */
  readonly end: string;
  /** A line break at either end of a value is the format's. */
  readonly lines: boolean;
  /** Whether what stands behind the name says that the value is a text; null where it says nothing. */
  isText?(named: string): boolean | null;
}
