/** Plots as SVG text: points and lines over two axes, every point labelled if wished. No fonts, no scripts, no files. */
import { CHARACTER, COLOURS, FONT, markup, round } from './svg-parts.js';

export interface PlotPoint {
  readonly x: number;
  readonly y: number;
  readonly label?: string;
}

export interface PlotSeries {
  readonly name: string;
  readonly points: readonly PlotPoint[];
  /** Draw the points alone, without a line through them. */
  readonly loose?: boolean;
}

export interface PlotOptions {
  readonly title: string;
  readonly xLabel: string;
  readonly yLabel: string;
  readonly series: readonly PlotSeries[];
  readonly xLog?: boolean;
  readonly yLog?: boolean;
  /** Names of the whole numbers on the x axis, for categories: the first is x = 0. */
  readonly xNames?: readonly string[];
  readonly yRange?: readonly [number, number];
}

const WIDTH = 960;
const HEIGHT = 600;
const EDGE = { left: 88, right: 24, top: 56, bottom: 92 };

interface Axis {
  readonly ticks: readonly { readonly at: number; readonly text: string }[];
  /** A value's place between 0 and 1. */
  place(value: number): number;
}

/** Values that an axis cannot show (infinite, or not above 0 on a logarithmic one) are left out. */
export function plotSvg(options: PlotOptions): string {
  const { title, xLabel, yLabel, xLog = false, yLog = false, xNames, yRange } = options;
  const shown = options.series.map((series) => ({
    ...series,
    points: series.points.filter(({ x, y }) => fits(x, xLog) && fits(y, yLog)),
  }));
  const all = shown.flatMap(({ points }) => points);
  const xAxis =
    xNames === undefined
      ? numberAxis(
          all.map(({ x }) => x),
          xLog,
        )
      : nameAxis(xNames);
  const yAxis = numberAxis(yRange ?? all.map(({ y }) => y), yLog);
  const px = (x: number): number => EDGE.left + xAxis.place(x) * (WIDTH - EDGE.left - EDGE.right);
  const py = (y: number): number => HEIGHT - EDGE.bottom - yAxis.place(y) * (HEIGHT - EDGE.top - EDGE.bottom);

  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="system-ui, sans-serif" font-size="${FONT}" fill="#222">`,
    `<title>${markup(title)}</title>`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
    `<text x="${EDGE.left}" y="30" font-size="17" font-weight="600">${markup(title)}</text>`,
  ];
  for (const { at, text } of xAxis.ticks) {
    const x = round(px(at));
    parts.push(
      `<path d="M${x} ${EDGE.top}V${HEIGHT - EDGE.bottom}" stroke="#e5e5e5"/>`,
      `<text x="${x}" y="${HEIGHT - EDGE.bottom + 18}" text-anchor="middle">${markup(text)}</text>`,
    );
  }
  for (const { at, text } of yAxis.ticks) {
    const y = round(py(at));
    parts.push(
      `<path d="M${EDGE.left} ${y}H${WIDTH - EDGE.right}" stroke="#e5e5e5"/>`,
      `<text x="${EDGE.left - 8}" y="${y + 4}" text-anchor="end">${markup(text)}</text>`,
    );
  }
  const middle = (EDGE.top + HEIGHT - EDGE.bottom) / 2;
  parts.push(
    `<text x="${(EDGE.left + WIDTH - EDGE.right) / 2}" y="${HEIGHT - EDGE.bottom + 40}" text-anchor="middle">${markup(xLabel)}</text>`,
    `<text transform="translate(22 ${middle}) rotate(-90)" text-anchor="middle">${markup(yLabel)}</text>`,
  );

  const taken: Box[] = [];
  for (const [i, { points, loose = false }] of shown.entries()) {
    const colour = COLOURS[i % COLOURS.length];
    const places = points.map(({ x, y }) => `${round(px(x))} ${round(py(y))}`);
    if (!loose && places.length > 1)
      parts.push(`<path d="M${places.join('L')}" fill="none" stroke="${colour}" stroke-width="1.5"/>`);
    for (const { x, y } of points) {
      parts.push(`<circle cx="${round(px(x))}" cy="${round(py(y))}" r="4" fill="${colour}"/>`);
      taken.push({ x: px(x) - 5, y: py(y) - 5, width: 10, height: 10 });
    }
  }
  for (const [i, { points }] of shown.entries()) {
    for (const { x, y, label } of points) {
      if (label === undefined) continue;
      const box = labelBox(px(x), py(y), label, taken);
      taken.push(box);
      parts.push(
        `<text x="${round(box.x)}" y="${round(box.y + FONT - 2)}" fill="${COLOURS[i % COLOURS.length]}">${markup(label)}</text>`,
      );
    }
  }
  parts.push(legend(options.series), '</svg>');
  return `${parts.join('\n')}\n`;
}

function fits(value: number, log: boolean): boolean {
  return Number.isFinite(value) && (!log || value > 0);
}

interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** The first place beside a point where a label covers no point and no other label; right of it where there is none. */
function labelBox(x: number, y: number, label: string, taken: readonly Box[]): Box {
  const width = label.length * CHARACTER;
  const height = FONT + 2;
  const places = [8, 16, 26].flatMap((gap) => [
    { x: x + gap, y: y - height / 2 },
    { x: x - gap - width, y: y - height / 2 },
    { x: x - width / 2, y: y - gap - height },
    { x: x - width / 2, y: y + gap },
    { x: x + gap, y: y - gap - height / 2 },
    { x: x + gap, y: y + gap - height / 2 },
    { x: x - gap - width, y: y - gap - height / 2 },
    { x: x - gap - width, y: y + gap - height / 2 },
  ]);
  const boxes = places.map((place) => ({ ...place, width, height }));
  const free = boxes.find(
    (box) =>
      box.x > EDGE.left &&
      box.x + width < WIDTH - 4 &&
      box.y > EDGE.top - 16 &&
      box.y + height < HEIGHT - EDGE.bottom &&
      !taken.some((other) => overlaps(box, other)),
  );
  return free ?? boxes[0]!;
}

function overlaps(a: Box, b: Box): boolean {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}

function legend(series: readonly PlotSeries[]): string {
  let x = EDGE.left;
  const y = HEIGHT - 22;
  return series
    .map(({ name }, i) => {
      const entry = `<circle cx="${round(x + 5)}" cy="${y - 4}" r="5" fill="${COLOURS[i % COLOURS.length]}"/><text x="${round(x + 15)}" y="${y}">${markup(name)}</text>`;
      x += 15 + name.length * CHARACTER + 22;
      return entry;
    })
    .join('\n');
}

function nameAxis(names: readonly string[]): Axis {
  return {
    ticks: names.map((text, at) => ({ at, text })),
    place: (value) => (value + 0.5) / names.length,
  };
}

function numberAxis(values: readonly number[], log: boolean): Axis {
  const low = Math.min(...values);
  const high = Math.max(...values);
  if (!(low <= high)) return { ticks: [], place: () => 0.5 };
  return log ? logAxis(low, high) : linearAxis(low, high);
}

function linearAxis(low: number, high: number): Axis {
  const step = niceStep((high - low || Math.abs(high) || 1) / 6);
  const from = Math.floor(low / step) * step;
  const to = Math.max(from + step, Math.ceil(high / step) * step);
  const ticks = Array.from({ length: Math.round((to - from) / step) + 1 }, (_, i) => {
    const at = from + i * step;
    return { at, text: String(Number(at.toPrecision(6))) };
  });
  return { ticks, place: (value) => (value - from) / (to - from) };
}

function niceStep(rough: number): number {
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((n) => n * power >= rough * 0.999) ?? 10;
  return step * power;
}

/** From one power of ten (or of two, where that is little) to another. */
function logAxis(low: number, high: number): Axis {
  const base = high / low < 100 ? 2 : 10;
  const log = (value: number): number => Math.log(value) / Math.log(base);
  const from = Math.floor(log(low) + 1e-9);
  const to = Math.max(from + 1, Math.ceil(log(high) - 1e-9));
  const ticks = Array.from({ length: to - from + 1 }, (_, i) => {
    const at = base ** (from + i);
    return { at, text: at >= 0.001 && at < 1e5 ? String(Number(at.toPrecision(4))) : at.toExponential(0) };
  });
  return { ticks, place: (value) => (log(value) - from) / (to - from) };
}
