import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

// Not a part of `npm test`: installs clients, some 60 MB, into a temporary folder.
export default defineConfig({
  root: fileURLToPath(new URL('../..', import.meta.url)),
  test: {
    include: ['test/clients/**/*.test.ts'],
    pool: 'forks',
    fileParallelism: false,
    testTimeout: 300_000,
    hookTimeout: 600_000,
  },
});
