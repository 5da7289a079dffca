import { describe, expect, it } from 'vitest';
import { Origins } from './origins.js';

describe('Origins', () => {
  it.each([
    [['https://a.example'], ['https://a.example', 'https://A.example', 'https://a.example:443']],
    [['https://a.example/'], ['https://a.example']],
    [['HTTP://localhost:80'], ['http://localhost']],
    [
      ['http://a.example', 'https://b.example:8443'],
      ['http://a.example', 'https://b.example:8443'],
    ],
    [['http://a.example, http://b.example'], ['http://a.example', 'http://b.example']],
    [['http://localhost:*'], ['http://localhost:3000', 'http://localhost:5173']],
    [['https://*.example.com'], ['https://a.example.com', 'https://a.b.example.com']],
    [['tauri://localhost'], ['tauri://localhost']],
    [['vscode-webview://'], ['vscode-webview://0r1k', 'vscode-webview://']],
    [['app://*'], ['app://obsidian.md', 'app://-']],
    [['file://'], ['file://']],
    [['null'], ['null']],
    [['*'], ['https://any.example', 'null', 'what, ever']],
  ])('%j allows %j', (given, allowed) => {
    const origins = new Origins(given);
    for (const origin of allowed) expect(origins.allows(origin), origin).toBe(true);
  });

  it.each([
    [[], ['null', '', 'http://localhost']],
    [
      ['https://a.example'],
      ['http://a.example', 'https://a.example:8443', 'https://b.example', 'https://a.example.evil.example'],
    ],
    [
      ['https://a.example'],
      ['https://a.example, https://evil.example', 'https://a.example https://evil.example'],
    ],
    [
      ['https://a.example'],
      ['https://a.example/', 'https://a.example/x', 'https://evil.example#https://a.example'],
    ],
    [
      ['http://localhost:*'],
      ['http://localhost.evil.example', 'https://localhost:1', 'http://localhost:1@evil.example'],
    ],
    [
      ['https://*.example.com'],
      [
        'https://example.com',
        'https://evil.example/.example.com',
        'https://a.example.com.evil.example',
        'https://aXexampleYcom',
      ],
    ],
    [['app://'], ['app', 'app:', 'myapp://x', 'app://x/y', 'app://x, http://evil.example']],
    [['vscode-webview://*'], ['vscode-webviewX://a', 'http://vscode-webview']],
    [['null'], ['nullx', 'null, null']],
  ])('%j refuses %j', (given, refused) => {
    const origins = new Origins(given);
    for (const origin of refused) expect(origins.allows(origin), origin).toBe(false);
  });

  it.each([
    '',
    'a.example',
    'localhost:3000',
    'https://a.example/path',
    'https://a b',
    'https://u@a.example',
    '//a',
    'https:',
  ])('takes no "%s"', (text) => {
    expect(() => new Origins([text])).toThrow(/origin/);
  });
});
