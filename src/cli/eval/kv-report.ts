/** What `kvant eval kv` found: the report, as a table for people and as plots. */
import type { DeviceInfo } from '../../device/device.js';
import { type PlotSeries, plotSvg } from '../svg-plot.js';
import type { SetScore } from './kv-questions.js';
import type { CacheScores, Scores } from './kv-score.js';

export interface EvalKvReport {
  readonly model: string;
  readonly device: Pick<DeviceInfo, 'name' | 'kind' | 'precision' | 'deterministic' | 'features'>;
  readonly date: string;
  readonly versions: Readonly<Record<string, string>>;
  readonly baseline: string;
  readonly texts: readonly TextsInfo[];
  readonly formats: readonly FormatReport[];
}

export interface TextsInfo {
  readonly name: string;
  readonly texts: number;
  readonly tokens: number;
  readonly scored: number;
}

export interface FormatReport extends CacheScores {
  readonly questions: readonly SetScore[];
}

/** Everything that was cut came out as it did whole. */
export function isIdentical(report: EvalKvReport): boolean {
  return report.formats.every(
    ({ identical, questions }) =>
      identical !== false && questions.every(({ cut }) => cut === null || cut.identical),
  );
}

export function reportTable(report: EvalKvReport): string {
  const sets = report.formats[0]?.questions.map(({ set }) => set.replace(/^eval-/, '')) ?? [];
  const cut = report.formats.some(({ cut }) => cut !== null);
  const rows = [
    [
      'format',
      'B/vector',
      'bits',
      'perplexity',
      'change',
      'KL mean',
      'KL p99',
      'KL max',
      'top-1',
      ...sets,
      ...(cut ? ['cut the same'] : []),
    ],
    ...report.formats.map((format) => [
      format.name,
      figures(format.size.bytesPerVector),
      figures(format.size.bitsPerValue),
      ...distances(format.whole),
      ...format.questions.map(({ right, lost, won }) => `${right} −${lost.length} +${won.length}`),
      ...(cut ? [cutWord(format)] : []),
    ]),
  ];
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const lines = rows.map((row) =>
    row
      .map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!)))
      .join('  ')
      .trimEnd(),
  );
  return `${lines.join('\n')}\n`;
}

/** Where nothing was scored, dashes. */
function distances({ tokens, perplexity, perplexityChange, klMean, klP99, klMax, top1 }: Scores): string[] {
  if (tokens === 0) return new Array<string>(6).fill('–');
  const share = `${(100 * top1).toFixed(2)} %`;
  return [
    perplexity.toFixed(4),
    percent(perplexityChange),
    ...[klMean, klP99, klMax].map((value) => small(value)),
    share,
  ];
}

function cutWord({ identical, cut, whole, questions }: FormatReport): string {
  if (identical === null || cut === null) return '–';
  if (identical && questions.every((set) => set.cut?.identical !== false)) return 'yes';
  const answers = questions.filter((set) => set.cut?.identical === false).length;
  if (whole.tokens === 0) return `answers differ in ${answers}`;
  return `KL ${small(cut.klMean)} for ${small(whole.klMean)}${answers > 0 ? `, answers differ in ${answers}` : ''}`;
}

/** KL against bytes a vector, every format labelled. Null where nothing was scored. */
export function klPlot(report: EvalKvReport): string | null {
  if (report.formats.every(({ whole }) => whole.tokens === 0)) return null;
  const judged = report.formats.filter(({ name }) => name !== report.baseline);
  const families = new Map<string, { x: number; y: number; label: string }[]>();
  for (const { name, size, whole } of judged) {
    const family = familyName(name);
    const points = families.get(family) ?? [];
    points.push({ x: size.bytesPerVector, y: whole.klMean, label: name });
    families.set(family, points);
  }
  const series: PlotSeries[] = [...families].map(([name, points]) => ({
    name,
    points: points.sort((a, b) => a.x - b.x),
    loose: name === 'mixed' || name === 'float' || name === 'variants',
  }));
  return plotSvg({
    title: `${report.model}: distance from ${report.baseline} KV, ${report.device.name}`,
    xLabel: 'bytes a vector, mean of K and V, padding and metadata counted',
    yLabel: 'mean KL of the next-token distributions (nats)',
    series,
    xLog: true,
    yLog: true,
  });
}

/** Right answers by context length, one line a format. Null where no set has lengths. */
export function recallPlot(report: EvalKvReport): string | null {
  const find = (format: FormatReport): SetScore | undefined =>
    format.questions.find(({ groups }) => Object.keys(groups).every((group) => /^\d+-\d+$/.test(group)));
  const first = report.formats[0] === undefined ? undefined : find(report.formats[0]);
  if (first === undefined) return null;
  const buckets = Object.keys(first.groups).sort((a, b) => Number.parseInt(a, 10) - Number.parseInt(b, 10));
  const series = report.formats.map((format) => ({
    name: format.name,
    points: buckets.map((bucket, x) => {
      const { right, questions } = find(format)!.groups[bucket]!;
      return { x, y: (100 * right) / questions };
    }),
  }));
  const least = Math.min(...series.flatMap(({ points }) => points.map(({ y }) => y)));
  return plotSvg({
    title: `${report.model}: recall by context length (${first.set}, ${first.questions} questions)`,
    xLabel: 'tokens of the prompt',
    yLabel: 'right answers (%)',
    series,
    xNames: buckets,
    yRange: [Math.min(90, Math.floor(least / 10) * 10), 100],
  });
}

/** `affine4-g32` → `affine, groups of 32`. */
function familyName(name: string): string {
  if (/:|-plain/.test(name)) return 'variants';
  if (/^f\d+$/.test(name)) return 'float';
  const affine = /^affine\d+(?:-g(\d+))?$/.exec(name);
  if (affine !== null) return `affine, groups of ${affine[1] ?? '64'}`;
  return /^turbo[\d.]+$/.test(name) ? 'TurboQuant' : 'mixed';
}

function figures(value: number): string {
  return String(Number(value.toFixed(2)));
}

function percent(value: number): string {
  return `${value < 0 ? '−' : '+'}${(100 * Math.abs(value)).toFixed(3)} %`;
}

function small(value: number): string {
  return value === 0 ? '0' : value.toExponential(2);
}
