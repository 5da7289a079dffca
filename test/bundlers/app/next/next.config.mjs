import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));

export default {
  output: 'standalone',
  turbopack: { root },
  outputFileTracingRoot: root,
  ...(process.env.EXTERNAL === '1' ? { serverExternalPackages: ['kvant'] } : {}),
  // Paths are of the application's folder; kvant is installed one above it here.
  ...(process.env.WHOLE === '1'
    ? { outputFileTracingIncludes: { '/api/*': ['../node_modules/kvant/dist/**/*'] } }
    : {}),
};
