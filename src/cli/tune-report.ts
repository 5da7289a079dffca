/** What tuning found, as a table: for each decision the rule's kernel, the chosen one, and how near either is to the device's limits. */
import type { TunedDecision } from '../device/webgpu/tuning/tune.js';

export interface TuneCeilings {
  /** Bytes a second that the device reads; NaN if it was not measured. */
  readonly read: number;
  /** Operations a second of its matrices; null where it has none. */
  readonly matrix: number | null;
}

/** Share of the nearest limit, 0 to 1: what reading alone, or multiplying alone, would take of `us`. */
export function shareOf(
  { bytes, operations }: Pick<TunedDecision, 'bytes' | 'operations'>,
  us: number,
  { read, matrix }: TuneCeilings,
): { readonly share: number; readonly of: 'reads' | 'matrices' } {
  const reading = bytes / read;
  const multiplying = matrix === null ? 0 : operations / matrix;
  const of = multiplying > reading ? 'matrices' : 'reads';
  return { share: Math.max(reading, multiplying) / (us * 1e-6), of };
}

const number = (us: number): string => (Number.isNaN(us) ? '–' : us < 100 ? us.toFixed(1) : us.toFixed(0));
const percent = (share: number): string => (Number.isFinite(share) ? `${Math.round(share * 100)} %` : '–');

/** The work of a decision without what follows from it. */
export function workName(key: string): string {
  return key
    .split(' ')
    .filter((part) => !/^(x\d|out\d|rows\d)/.test(part))
    .join(' ');
}

const COLUMNS = ['rows', 'by rule, µs', 'share', 'chosen, µs', 'share', 'gain'] as const;

/** One line for each decision. */
export function tuneTable(decisions: readonly TunedDecision[], ceilings: TuneCeilings): string {
  const work = Math.max(...decisions.map((d) => workName(d.key).length));
  const lines = [
    `${'work'.padEnd(work)}${COLUMNS.map((c) => c.padStart(13)).join('')}  kernel`,
    ...decisions.map((d) => {
      const changed = d.choice !== d.rule;
      const cells = [
        String(d.rows),
        number(d.ruleUs),
        percent(shareOf(d, d.ruleUs, ceilings).share),
        changed ? number(d.us) : '',
        changed ? percent(shareOf(d, d.us, ceilings).share) : '',
        changed ? percent(1 - d.us / d.ruleUs) : '',
      ];
      const kernel = changed ? `${d.rule} → ${d.choice}${d.neutral ? '' : ' (another order)'}` : d.rule;
      const how = d.by === 'measured' ? '' : `  [${d.by === 'failed' ? `failed: ${d.why}` : d.by}]`;
      return `${workName(d.key).padEnd(work)}${cells.map((c) => c.padStart(13)).join('')}  ${kernel}${how}`;
    }),
  ];
  return `${lines.map((line) => line.trimEnd()).join('\n')}\n`;
}

/** Every candidate of every decision that was measured, the fastest first. */
export function candidateTable(decisions: readonly TunedDecision[], ceilings: TuneCeilings): string {
  const lines: string[] = [];
  for (const d of decisions) {
    if (d.times.length === 0) continue;
    const { of } = shareOf(d, 1, ceilings);
    lines.push(`${workName(d.key)}, ${d.rows} rows (share of ${of})`);
    const sorted = [...d.times].sort((a, b) => (a.us || Infinity) - (b.us || Infinity));
    for (const { id, neutral, us } of sorted) {
      const marks = [
        id === d.rule ? 'by rule' : neutral ? 'same bits' : 'another order',
        ...(id === d.choice ? ['chosen'] : []),
        ...(Number.isNaN(us) ? ['does not run'] : []),
      ];
      lines.push(
        `  ${number(us).padStart(9)} µs ${percent(shareOf(d, us, ceilings).share).padStart(6)}  ${id.padEnd(36)} ${marks.join(', ')}`,
      );
    }
  }
  return `${lines.join('\n')}\n`;
}

export function tuneSummary(decisions: readonly TunedDecision[], ms: number): string {
  const count = (by: TunedDecision['by']): number => decisions.filter((d) => d.by === by).length;
  const changed = decisions.filter((d) => d.choice !== d.rule).length;
  const parts = [
    `${decisions.length} decisions`,
    `${changed} for another kernel than by rule`,
    `${count('measured')} measured in ${(ms / 1000).toFixed(1)} s`,
    `${count('cache')} known`,
    ...(count('skipped') > 0 ? [`${count('skipped')} left for the next time`] : []),
    ...(count('failed') > 0 ? [`${count('failed')} failed`] : []),
  ];
  return `${parts.join(', ')}\n`;
}
