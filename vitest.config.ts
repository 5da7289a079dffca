import { defineConfig } from 'vitest/config';

// `npm test` runs everything; `--project` picks a suite. Suites run in forks so that a device
// (threads, shared memory, Dawn) never outlives the file that made it.
export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
    globalSetup: ['test/setup/build.ts'],
    pool: 'forks',
    testTimeout: 180_000,
    hookTimeout: 60_000,
  },
});
