/** OpenAI's protocol: chat completions and completions. */
import type { ReceivedBody } from '../body-text.js';
import type { Endpoint, Protocol } from '../protocol.js';
import { parseBody } from '../request-body.js';
import { openAiAnswer } from './answer.js';
import { errorBody } from './error-body.js';
import { type OpenAiAsked, parseChat, parseCompletion, TEMPLATE_FIELDS } from './schemas.js';
import { wireError } from './wire-names.js';

const CHAT: Endpoint<OpenAiAsked> = {
  path: '/v1/chat/completions',
  name: 'chat',
  kind: 'chat',
  parse(received: ReceivedBody) {
    const { request, ...choice } = parseChat(parseBody(received, TEMPLATE_FIELDS));
    return { ...choice, requests: [request] };
  },
  answer: (setup) => openAiAnswer('chat', setup),
};

const COMPLETIONS: Endpoint<OpenAiAsked> = {
  path: '/v1/completions',
  name: 'text',
  kind: 'text',
  parse: (received) => parseCompletion(parseBody(received)),
  answer: (setup) => openAiAnswer('text', setup),
};

export const OPENAI: Protocol = {
  name: 'openai',
  endpoints: [CHAT, COMPLETIONS],
  errorBody,
  inBodyNames: (error, asked) => wireError(error, asked as OpenAiAsked | null),
};
