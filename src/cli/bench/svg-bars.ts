/**
 * Bar charts as SVG text: groups of lying bars, a label behind each. Every group has a scale of its own, for what is
 * compared are the bars of a group; how long they are says so, and how much they stand for the labels.
 */
import { CHARACTER, COLOURS, FONT, markup, round } from '../svg-parts.js';

export interface Bar {
  /** Index into the names of the series: its colour. */
  readonly series: number;
  /** From 0. What is not finite is drawn as nothing, with its label. */
  readonly value: number;
  readonly label: string;
}

export interface BarGroup {
  readonly name: string;
  readonly bars: readonly Bar[];
}

export interface BarOptions {
  readonly title: string;
  /** Below the title: the unit, and that groups have scales of their own. */
  readonly subtitle: string;
  readonly series: readonly string[];
  readonly groups: readonly BarGroup[];
}

const WIDTH = 960;
const EDGE = { left: 20, right: 24, top: 78, bottom: 48 };
const BAR = 16;
const BETWEEN_BARS = 3;
const BETWEEN_GROUPS = 18;

export function barsSvg({ title, subtitle, series, groups }: BarOptions): string {
  const left = EDGE.left + Math.max(0, ...groups.map(({ name }) => name.length)) * CHARACTER + 12;
  const labels = Math.max(0, ...groups.flatMap(({ bars }) => bars.map(({ label }) => label.length)));
  const longest = Math.max(80, WIDTH - EDGE.right - left - 8 - labels * CHARACTER);
  const parts: string[] = [];
  let y = EDGE.top;
  for (const { name, bars } of groups) {
    const most = Math.max(...bars.map(({ value }) => shown(value)));
    const height = bars.length * (BAR + BETWEEN_BARS) - BETWEEN_BARS;
    parts.push(
      `<text x="${round(left - 12)}" y="${round(y + height / 2 + FONT / 3)}" text-anchor="end">${markup(name)}</text>`,
    );
    for (const { series: index, value, label } of bars) {
      const width = most > 0 ? (shown(value) / most) * longest : 0;
      parts.push(
        `<rect x="${round(left)}" y="${y}" width="${round(width)}" height="${BAR}" fill="${COLOURS[index % COLOURS.length]}"/>`,
        `<text x="${round(left + width + 6)}" y="${y + BAR - 4}">${markup(label)}</text>`,
      );
      y += BAR + BETWEEN_BARS;
    }
    y += BETWEEN_GROUPS - BETWEEN_BARS;
  }
  const height = y + EDGE.bottom - BETWEEN_GROUPS;
  let x = EDGE.left;
  for (const [i, name] of series.entries()) {
    if (!groups.some(({ bars }) => bars.some((bar) => bar.series === i))) continue;
    parts.push(
      `<circle cx="${round(x + 5)}" cy="${height - 18}" r="5" fill="${COLOURS[i % COLOURS.length]}"/>`,
      `<text x="${round(x + 15)}" y="${height - 14}">${markup(name)}</text>`,
    );
    x += 15 + name.length * CHARACTER + 22;
  }
  return `${[
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="system-ui, sans-serif" font-size="${FONT}" fill="#222">`,
    `<title>${markup(title)}</title>`,
    `<rect width="${WIDTH}" height="${height}" fill="#fff"/>`,
    `<text x="${EDGE.left}" y="30" font-size="17" font-weight="600">${markup(title)}</text>`,
    `<text x="${EDGE.left}" y="52" fill="#555">${markup(subtitle)}</text>`,
    ...parts,
    '</svg>',
  ].join('\n')}\n`;
}

function shown(value: number): number {
  return Number.isFinite(value) ? Math.max(0, value) : 0;
}
