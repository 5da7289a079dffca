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
const QUIET_MS = 300;
const BAR = 24;

export class ProgressBar {
  readonly #out: NodeJS.WriteStream;
  readonly #startedAt = performance.now();
  #label = '';
  #labelAt = 0;
  #drawnAt = 0;
  #shown = false;

  constructor(out: NodeJS.WriteStream = process.stderr) {
    this.#out = out;
  }

  update(update: ProgressUpdate): void {
    const now = performance.now();
    if (update.label !== this.#label) {
      this.#label = update.label;
      this.#labelAt = now;
      this.#drawnAt = 0;
    }
    if (now - this.#startedAt < QUIET_MS || now - this.#drawnAt < DRAW_EVERY_MS) return;
    const first = this.#drawnAt === 0;
    this.#drawnAt = now;
    if (this.#out.isTTY) {
      this.#out.write(`\r\x1b[K${this.#line(update, now)}`);
      this.#shown = true;
    } else if (first) {
      this.#out.write(`${update.label} …\n`);
    }
  }

  /** Clears the line. */
  done(): void {
    if (this.#shown) this.#out.write('\r\x1b[K');
    this.#shown = false;
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
        : `${done} ${unit}`;
    const rate = unit === 'bytes' && seconds > 0.5 ? `, ${formatBytes(done / seconds)}/s` : '';
    const left =
      share > 0.02 && share < 1 && seconds > 1
        ? `, ${Math.ceil((seconds / share) * (1 - share))} s left`
        : '';
    const text = `${label.padEnd(10)} ${bar}${amount}${rate}${left}${item === undefined ? '' : `  ${item}`}`;
    return styleText('dim', text.slice(0, Math.max(20, (this.#out.columns ?? 80) - 1)));
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
