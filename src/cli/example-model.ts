import { existsSync } from 'node:fs';

const DEMO = 'models/demo-text';

/** A model that examples can name: the demo model where it is there, in a clone, else one of the hub. */
export const EXAMPLE_MODEL = existsSync(new URL(`../../${DEMO}/config.json`, import.meta.url))
  ? DEMO
  : 'Qwen/Qwen3-0.6B';
