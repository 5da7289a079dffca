/** The grammar that a request brings. */

import type { ForcedRuns } from '../grammar/forced-runs.js';
import type { GrammarTables } from '../grammar/tables.js';
import type { TokenTries } from './texts/grammar-task.js';

/** Plain data. */
export interface RowGrammar {
  readonly tables: GrammarTables;
  readonly tries: TokenTries;
  readonly runs: ForcedRuns;
}
