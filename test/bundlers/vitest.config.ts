import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

// Not a part of `npm test`: installs bundlers and a framework, half a gigabyte, into a temporary folder.
export default defineConfig({
  root: fileURLToPath(new URL('../..', import.meta.url)),
  test: {
    include: ['test/bundlers/**/*.test.ts'],
    pool: 'forks',
    fileParallelism: false,
    testTimeout: 600_000,
    hookTimeout: 600_000,
  },
});
