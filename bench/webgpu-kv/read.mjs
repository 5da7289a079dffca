// The rate at which the GPU reads.

import { execFileSync } from 'node:child_process';
import { bench, quick, report } from './context.mjs';

/** Read bandwidth, after enough work to bring the clocks up; and what the driver says of them. */
export async function measureRead(when) {
  const bytes = quick ? 2 ** 26 : 2 ** 30;
  const data = bench.buffer(bytes);
  const out = bench.buffer(16);
  const words = bytes / 16;
  const read = await bench.compile({
    label: 'read',
    bindings: ['data', 'out'],
    writes: ['out'],
    workgroups: [4096, 1, 1],
    wgsl: `@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<u32>>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  var sum = vec4<u32>();
  for (var i = id.x; i < ${words}u; i += ${4096 * 256 * 4}u) {
    sum ^= data[i]; sum += data[min(i + ${4096 * 256}u, ${words - 1}u)]; sum ^= data[min(i + ${4096 * 512}u, ${words - 1}u)]; sum += data[min(i + ${4096 * 768}u, ${words - 1}u)];
  }
  if (all(sum == vec4<u32>(0x12345u))) { out[0] = sum; }
}`,
  });
  const { us } = await bench.time(
    [bench.launch(read, { data, out })],
    quick ? { samples: 1, targetUs: 300 } : { samples: 9, targetUs: 5000, warmMs: 2500 },
  );
  data.destroy();
  const readGBs = bytes / us / 1000;
  report.ceilings[when] = readGBs;
  report.ceilings.readGBs = Math.max(readGBs, report.ceilings.readGBs ?? 0);
  console.log(`read, ${when}: ${readGBs.toFixed(0)} GB/s  ${clocks()}`);
}

export function clocks() {
  const what = 'clocks.sm,clocks.mem,clocks_throttle_reasons.active,power.draw,temperature.gpu';
  try {
    return execFileSync('nvidia-smi', [`--query-gpu=${what}`, '--format=csv,noheader'], {
      encoding: 'utf8',
    }).trim();
  } catch {
    return '';
  }
}
