/** A progress bar on stderr: drawn on a terminal, a line per phase otherwise, nothing for what is over in a moment. */
import { styleText } from 'node:util';

export interface ProgressUpdate {
  readonly label: string;
  readonly done: number;
  /** 0: unknown. */
  readonly total: number;
  readonly unit: string;
  readonly item?: string;
}

const DRAW_EVERY_MS = 80;
const HEARTBEAT_MS = 250;
/** What is over so soon is not worth a word; a line that stays, later than one that is cleared. */
const QUIET_MS = 300;
const QUIET_LINES_MS = 1000;
const BAR = 24;

export class ProgressBar {
  readonly #out: NodeJS.WriteStream;
  readonly #startedAt = performance.now();
  #latest: ProgressUpdate | null = null;
  #labelAt = 0;
  #drawnAt = 0;
  #shown = false;
  /** Draws while no news come: a long step must not look like a dead one. */
  #heartbeat: NodeJS.Timeout | undefined;

  constructor(out: NodeJS.WriteStream = process.stderr) {
    this.#out = out;
  }

  update(update: ProgressUpdate): void {
    if (update.label !== this.#latest?.label) {
      this.#labelAt = performance.now();
      this.#drawnAt = 0;
    }
    this.#latest = update;
    this.#heartbeat ??= setInterval(() => this.#draw(), HEARTBEAT_MS).unref();
    this.#draw();
  }

  /** Ends it, and clears the line. */
  done(): void {
    clearInterval(this.#heartbeat);
    this.#heartbeat = undefined;
    this.#latest = null;
    this.clear();
  }

  /** Clears the line, for something else to be written. What comes next is drawn below it. */
  clear(): void {
    if (this.#shown) this.#out.write('\r\x1b[K');
    this.#shown = false;
  }

  #draw(): void {
    const now = performance.now();
    if (this.#latest === null) return;
    const quiet = this.#out.isTTY ? QUIET_MS : QUIET_LINES_MS;
    if (now - this.#startedAt < quiet || now - this.#drawnAt < DRAW_EVERY_MS) return;
    const first = this.#drawnAt === 0;
    this.#drawnAt = now;
    if (this.#out.isTTY) {
      this.#out.write(`\r\x1b[K${this.#line(this.#latest, now)}`);
      this.#shown = true;
    } else if (first) {
      this.#out.write(`${this.#latest.label} …\n`);
    }
  }

  #line({ label, done, total, unit, item }: ProgressUpdate, now: number): string {
    const seconds = (now - this.#labelAt) / 1000;
    const share = total > 0 ? Math.min(1, done / total) : 0;
    const filled = Math.round(share * BAR);
    const bar =
      total > 0
        ? `${'█'.repeat(filled)}${'░'.repeat(BAR - filled)} ${String(Math.floor(share * 100)).padStart(3)} % `
        : '';
    const amount =
      unit === 'bytes'
        ? `${formatBytes(done)}${total > 0 ? ` of ${formatBytes(total)}` : ''}`
        : done === 0
          ? ''
          : total > 0
            ? `${done} of ${total} ${unit}`
            : `${done} ${unit}`;
    const rate = unit === 'bytes' && seconds > 0.5 ? `, ${formatBytes(done / seconds)}/s` : '';
    const left =
      share > 0.02 && share < 1 && seconds > 1
        ? `, ${Math.ceil((seconds / share) * (1 - share))} s left`
        : '';
    const text = `${label.padEnd(10)} ${bar}${amount}${rate}${left}${item === undefined ? '' : `  ${item}`}`;
    return styleText('dim', text.slice(0, Math.max(20, (this.#out.columns || 80) - 1)));
  }
}

/** `1.5 GiB`. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}
