// A server of the skills in skills/, on the Skills extension's own library. It speaks both eras
// over standard streams.
import { fileURLToPath } from 'node:url';

import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { discoverSkills, registerSkillResources } from '@olaservo/ext-skills/server';

const folder = fileURLToPath(new URL('skills', import.meta.url));
const skills = discoverSkills(folder);

serveStdio(() => {
  const server = new McpServer({ name: 'skills', version: '1.0.0' }, { capabilities: { resources: {} } });
  registerSkillResources(server, skills, folder, { template: true, directoryRead: true });
  return server;
});
