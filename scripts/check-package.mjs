// Packs the package as it would be published, installs the tarball into an empty folder and imports what it exports.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'kvant-package-'));
try {
  execFileSync('npx', ['publint', '--strict'], { cwd: root, stdio: 'inherit' });
  const packed = JSON.parse(
    execFileSync('npm', ['pack', '--json', '--pack-destination', folder], { cwd: root, encoding: 'utf8' }),
  );
  const { filename, files, size } = Array.isArray(packed) ? packed[0] : Object.values(packed)[0];
  const names = files.map((f) => f.path);
  for (const needed of [
    'dist/index.js',
    'dist/index.d.ts',
    'dist/server/index.js',
    'dist/cli/main.js',
    'dist/device/cpu/wasm/kernels-simd.wasm',
    'dist/device/cpu/wasm/kernels-relaxed.wasm',
    'dist/device/cpu/wasm/kernels-dot.wasm',
    'dist/device/cpu/pack-wasm/pack.wasm',
    'dist/media/wasm/resize.wasm',
    'dist/device/blocks/wasm/unpack.wasm',
    'LICENSE',
    'README.md',
  ]) {
    if (!names.includes(needed)) throw new Error(`${needed} is missing from the package`);
  }
  const stray = names.filter((n) => /\.test\.|^src\/|^test\/|^models\/|\.tsbuildinfo$/.test(n));
  if (stray.length > 0)
    throw new Error(`the package holds what it should not: ${stray.slice(0, 5).join(', ')}`);
  writeFileSync(join(folder, 'package.json'), '{"type":"module","private":true}');
  execFileSync(
    'npm',
    ['install', '--no-audit', '--no-fund', '--omit=optional', '--prefer-offline', join(folder, filename)],
    { cwd: folder, stdio: ['ignore', 'ignore', 'inherit'] },
  );
  writeFileSync(
    join(folder, 'use.mjs'),
    "import { Engine, KvantError } from 'kvant';\nimport * as server from 'kvant/server';\nif (typeof Engine.load !== 'function' || typeof KvantError !== 'function' || Object.keys(server).length === 0) throw new Error('exports are missing');\n",
  );
  execFileSync(process.execPath, ['use.mjs'], { cwd: folder, stdio: 'inherit' });
  execFileSync(join(folder, 'node_modules/.bin/kvant'), ['--help'], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  console.log(`${filename}: ${names.length} files, ${(size / 1024).toFixed(0)} KiB, imports and runs`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
