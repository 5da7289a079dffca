import type { Device, DeviceStats } from '../../src/device/device.js';

/** What a device holds at this time: its stats without the peak, which never falls. */
export function held(device: Pick<Device, 'stats'>): Omit<DeviceStats, 'peakBytes'> {
  const { peakBytes: _, ...rest } = device.stats();
  return rest;
}
