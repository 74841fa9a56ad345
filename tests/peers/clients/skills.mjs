// Loads all skills as a host does, with the Skills extension's own library: every file is verified
// against its digest, every frontmatter against its entry. Prints one line of JSON.
//
//     skills.mjs URL legacy|modern
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import {
  getSkill,
  listSkills,
  manifestOf,
  readSkill,
  readSkillResource,
  serverSupportsDirectoryRead,
  serverSupportsSkills,
  walkDirectory,
} from '@olaservo/ext-skills/client';

const [url, era] = process.argv.slice(2);
const mode = era === 'legacy' ? 'legacy' : { pin: '2026-07-28' };
const client = new Client({ name: 'skills', version: '1.0.0' }, { versionNegotiation: { mode } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const skills = [];
for (const listed of await listSkills(client)) {
  const entry = await getSkill(client, listed.uri);
  const files = {};
  for (const { uri } of manifestOf(entry)) {
    const read = uri === entry.uri ? await readSkill(client, entry) : await readSkillResource(client, entry, uri);
    files[uri] = read.text ?? read.blob ?? read;
  }
  const directory = entry.uri.slice(0, -'/SKILL.md'.length);
  const walked = (await walkDirectory(client, directory)).map((file) => file.uri);
  skills.push({ listed, entry, files, walked });
}
let refusal = null;
await getSkill(client, 'skill://nowhere/SKILL.md').catch((error) => (refusal = error.code));
console.log(JSON.stringify({
  supports: [serverSupportsSkills(client), serverSupportsDirectoryRead(client)],
  skills,
  refusal,
}));
await client.close();
