/** Buffers on a bare device. */

type Words = Float32Array | Uint32Array;

/** A buffer of data: for storage, and to be written, if `usage` does not say otherwise. */
export function uploadTo(raw: GPUDevice, data: Words, usage = 128 | 8): GPUBuffer {
  const buffer = raw.createBuffer({ size: data.byteLength, usage });
  raw.queue.writeBuffer(buffer, 0, data as Uint32Array<ArrayBuffer>);
  return buffer;
}

/** An empty one, to be read back too. */
export function emptyOn(raw: GPUDevice, bytes: number): GPUBuffer {
  return raw.createBuffer({ size: bytes, usage: 128 | 8 | 4 });
}

/** What is in a buffer that may be read back. */
export async function wordsOf(raw: GPUDevice, buffer: GPUBuffer): Promise<Uint32Array> {
  const staging = raw.createBuffer({ size: buffer.size, usage: 1 | 8 });
  const encoder = raw.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, 0, staging, 0, buffer.size);
  raw.queue.submit([encoder.finish()]);
  await staging.mapAsync(1);
  const words = new Uint32Array(staging.getMappedRange()).slice();
  staging.destroy();
  return words;
}
