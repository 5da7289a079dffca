import { defineConfig } from 'vitest/config';

// `npm test -- SUITE` runs one of the suites that scripts/test.mjs lists. They run in forks so that a device
// (threads, shared memory, Dawn) never outlives the file that made it.
export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
    // `npm run test:bundlers` and `npm run test:clients`, with configurations of their own.
    exclude: ['test/bundlers/**', 'test/clients/**'],
    globalSetup: ['test/setup/build.ts', 'test/setup/checkpoints.ts'],
    pool: 'forks',
    testTimeout: 180_000,
    hookTimeout: 180_000,
  },
});
