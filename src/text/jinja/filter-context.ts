/** What a filter is, to the run that it is part of. */
import type { Arguments, Value } from './values.js';

/** What a filter may ask of the run it is part of. */
export interface FilterContext {
  /** Applies a filter, or a test, by name. @throws PythonError for an unknown name */
  filter(name: string, value: Value, args: Arguments): Value;
  test(name: string, value: Value, args: Arguments): boolean;
}

export type Filter = (value: Value, args: Arguments, context: FilterContext) => Value;
