import type { Value } from './values.js';

/** The variables of a scope while it runs; undefined is one that is not set. */
export class Frame {
  readonly parent: Frame | null;
  readonly variables = new Map<string, Value | undefined>();

  constructor(parent: Frame | null) {
    this.parent = parent;
  }

  find(name: string): Value | undefined {
    for (let frame: Frame | null = this; frame !== null; frame = frame.parent) {
      if (frame.variables.has(name)) return frame.variables.get(name);
    }
    return undefined;
  }
}
