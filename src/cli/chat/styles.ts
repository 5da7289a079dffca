/** Colours on a terminal that has them, and where the user wants them. */
interface Target {
  readonly isTTY?: boolean;
  hasColors?(env?: object): boolean;
}

export class Styles {
  readonly on: boolean;

  /** NO_COLOR, NODE_DISABLE_COLORS and TERM=dumb count. */
  constructor(target: Target, env: NodeJS.ProcessEnv = process.env) {
    const wanted = (env.NO_COLOR ?? '') === '' && env.TERM !== 'dumb';
    this.on = wanted && target.isTTY === true && (target.hasColors?.(env) ?? true);
  }

  dim(text: string): string {
    return this.#wrap(text, 2, 22);
  }

  bold(text: string): string {
    return this.#wrap(text, 1, 22);
  }

  red(text: string): string {
    return this.#wrap(text, 31, 39);
  }

  #wrap(text: string, start: number, end: number): string {
    return this.on && text !== '' ? `\x1b[${start}m${text}\x1b[${end}m` : text;
  }
}
