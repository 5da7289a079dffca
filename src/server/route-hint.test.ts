import { describe, expect, it } from 'vitest';
import { routeHint } from './route-hint.js';

const routes = new Map([
  ['/health', 'GET'],
  ['/v1/models', 'GET'],
  ['/v1/chat/completions', 'POST'],
  ['/v1/completions', 'POST'],
]);

describe('the hint of a path that is not there', () => {
  it('names the route that a base URL has missed', () => {
    for (const path of [
      '/chat/completions',
      '/v1/v1/chat/completions',
      '/api/v1/chat/completions',
      '/openai/deployments/x/chat/completions',
    ])
      expect(routeHint(path, routes), path).toBe(
        'Did you mean POST /v1/chat/completions? The base URL of a client ends in /v1.',
      );
    expect(routeHint('/completions', routes)).toContain('Did you mean POST /v1/completions?');
    expect(routeHint('/models', routes)).toContain('Did you mean GET /v1/models?');
    for (const path of ['/v1/chat/completions/', '//v1//chat/completions'])
      expect(routeHint(path, routes)).toBe('Did you mean POST /v1/chat/completions?');
    expect(routeHint('/health/', routes)).toBe('Did you mean GET /health?');
  });

  it('tells what there is in place of routes of other servers', () => {
    for (const path of [
      '/v1/responses',
      '/responses',
      '/v1/messages',
      '/v1/messages/count_tokens',
      '/api/chat',
    ])
      expect(routeHint(path, routes), path).toContain('Use POST /v1/chat/completions');
    expect(routeHint('/v1/responses/resp_1', routes)).toMatch(
      /responses are not served.*openai\.chat\(model\)/,
    );
    expect(routeHint('/v1/messages', routes)).toContain('Anthropic’s messages are not served');
    for (const path of ['/v1/embeddings', '/embeddings', '/api/embed', '/v1/rerank'])
      expect(routeHint(path, routes), path).toContain('engine.embed');
    expect(routeHint('/api/tags', routes)).toBe('Use GET /v1/models.');
  });

  it('lists the routes for any other', () => {
    for (const path of ['/', '/favicon.ico', '/v1', '/v1/nope', '/v1/models/x/y'])
      expect(routeHint(path, routes), path).toBe(
        'Routes: GET /health, GET /v1/models, POST /v1/chat/completions, POST /v1/completions.',
      );
  });
});
