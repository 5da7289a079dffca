export interface NullGpuOptions {
  readonly toggles?: readonly string[];
  readonly onDevice?: (device: GPUDevice) => void;
}

export function createNullGpu(options?: NullGpuOptions): GPU;
