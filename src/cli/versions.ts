/** What a result was made with. */
import { readFileSync } from 'node:fs';
import { dawnVersion } from '../device/webgpu/node.js';

export function kvantVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}

/** kvant, Node, its engine, and the WebGPU binding where that is installed. */
export function versions(): Record<string, string> {
  const { node, v8 } = process.versions;
  return { kvant: kvantVersion(), node, v8, ...webgpuVersion() };
}

function webgpuVersion(): Record<string, string> {
  const webgpu = dawnVersion();
  return webgpu === '' ? {} : { webgpu };
}
