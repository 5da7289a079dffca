// Compiles the CPU kernels: one AssemblyScript program, built three times: without relaxed SIMD, with it, and with it and
// int8 products added up in 32 bits.
// Only what changed is built again; files are written aside and renamed, so that builds may run side by side.
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { attendTiles } from './generate-attend.mjs';
import { matmulTiles } from './generate-matmul.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const source = join(root, 'src/device/cpu/assembly');
const out = join(root, 'dist/device/cpu/wasm');
const common = [
  '--optimize',
  '--optimizeLevel',
  '3',
  '--shrinkLevel',
  '0',
  '--converge',
  '--noAssert',
  '--runtime',
  'stub',
  '--importMemory',
  '--sharedMemory',
  '--initialMemory',
  '1',
  '--maximumMemory',
  '65536',
  '--enable',
  'simd',
  '--enable',
  'threads',
  '--enable',
  'bulk-memory',
];
const builds = [
  { name: 'kernels-simd', flags: ['--use', 'RELAXED=0', '--use', 'DOT=0'] },
  { name: 'kernels-relaxed', flags: ['--enable', 'relaxed-simd', '--use', 'RELAXED=1', '--use', 'DOT=0'] },
  { name: 'kernels-dot', flags: ['--enable', 'relaxed-simd', '--use', 'RELAXED=1', '--use', 'DOT=1'] },
];

const generated = { 'matmul-tiles.ts': matmulTiles, 'attend-codes-tiles.ts': attendTiles };
for (const [name, text] of Object.entries(generated)) {
  const file = join(source, name);
  if ((await readFile(file, 'utf8').catch(() => '')) === text) continue;
  await writeFile(`${file}.${process.pid}`, text);
  await rename(`${file}.${process.pid}`, file);
}

const files = (await readdir(source)).filter((f) => f.endsWith('.ts')).sort();
const hash = createHash('sha256').update(await readFile(fileURLToPath(import.meta.url)));
for (const file of ['opcodes.ts', 'sample-words.ts']) hash.update(await readFile(join(source, '..', file)));
for (const file of files) hash.update(file).update(await readFile(join(source, file)));
const stamp = hash.digest('hex');
await mkdir(out, { recursive: true });
const previous = await readFile(join(out, 'stamp'), 'utf8').catch(() => '');
const built = builds.every(({ name }) => existsSync(join(out, `${name}.wasm`)));
if (previous !== stamp || !built) {
  const asc = await import('assemblyscript/asc');
  for (const { name, flags } of builds) {
    const temporary = join(out, `${name}.${process.pid}.wasm`);
    const { error, stderr } = await asc.main([
      join(source, 'index.ts'),
      '--outFile',
      temporary,
      ...common,
      ...flags,
    ]);
    if (error) {
      process.stderr.write(stderr.toString());
      throw error;
    }
    await rename(temporary, join(out, `${name}.wasm`));
  }
  await writeFile(join(out, `stamp.${process.pid}`), stamp);
  await rename(join(out, `stamp.${process.pid}`), join(out, 'stamp'));
}
