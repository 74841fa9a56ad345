//! Configurations of systems that call MCP servers for many agents, modelled on their
//! documentation.

use super::*;

#[test]
fn signalwires_servers_come_with_headers_and_resource_variables() {
    let user = User::new();
    let path = user.project("agent.json");
    user.has(&path, fixture("signalwire.json"));
    let path = path.to_str().unwrap();
    user.types(&["import", path]).exits_with(DONE).prints(&[
        "`${global_data.crm_token}` has no counterpart: one value for all calls is read from CRM_TOKEN",
        "`resource_vars.customer_id` differs from call to call",
        "#[servers.crm]\n#url = \"https://crm.example.com/mcp\"\n",
        "[servers.kb]\nurl = \"https://mcp.kb.example.org/mcp\"\nresource_vars = { customer_id = \"8675309\" }\ntimeout = \"25s\"\nmax_timeout = \"25s\"\n",
    ]);
    let user = User { variables: vec![("CRM_TOKEN", "t")], ..user };
    user.types(&["import", path, "--write"]).exits_with(DONE);
    let gateway = user.gateway();
    assert!(gateway.contains("\nheaders = { Authorization = \"Bearer ${env:CRM_TOKEN}\" }"));
    user.types(&["check"]).exits_with(DONE).prints_beside_missing_programs(&["2 server(s)"]);
}

#[test]
fn avas_servers_keep_their_tool_names_and_its_contexts_become_profiles() {
    let user = User::new();
    user.has(&user.project("config/ai-agent.yaml"), fixture("ava.yaml"));
    user.types(&["import"]).exits_with(DONE).prints(&["ava", "1 server"]);
    let ran = user.types(&["import", "ava", "--write"]).exits_with(DONE);
    ran.prints(&["set `name_format = \"mcp_{server}_{tool}\"` and `name_case = \"snake\"`"]);
    contains_all(
        user.gateway().as_bytes(),
        &[
            "command = \"python3\"\nargs = [\"-m\", \"src.mcp_servers.aviation_atis_server\", \"--config\", \"/app/config/aviation_atis.yaml\"]",
            "env = { METNO_USER_AGENT = \"Asterisk-AI-Voice-Agent (+https://github.com/...)\" }",
            "max_restarts = 5\ntimeout = \"10s\"\nslow_after = \"2s\"\nslow_message = \"Let me look that up for you, one moment...\"\n",
            "# `restart.backoff_ms` has no counterpart",
            "[servers.aviation_atis.tools.get_atis]\nname = \"mcp_aviation_atis_get_atis\"\ndescription = \"Get current ATIS for an airport\"\nresult.field = \"atis_text\"\n",
            "[servers.aviation_atis.tools.get_metar]\nname = \"mcp_aviation_atis_get_metar\"",
            "# AVA's own tools stay with AVA: transfer, hangup_call",
            "[profiles.aviation_support]\ntools = [\"mcp_aviation_atis_get_atis\", \"mcp_aviation_atis_get_metar\"]",
        ],
    );
    user.types(&["check"]).exits_with(DONE).prints_beside_missing_programs(&["fine"]);
}

#[test]
fn avas_speech_template_becomes_the_template_of_the_result() {
    let user = User::new();
    let template = fixture("ava.yaml").replace("# speech_template", "speech_template");
    user.has(&user.project("config/ai-agent.yaml"), template);
    user.types(&["import", "ava", "--write"]).exits_with(DONE);
    contains_all(
        user.gateway().as_bytes(),
        &[
            "result.template = \"The current ATIS for {icao} is: {atis_text}\"\n",
            "`speech_template` is used, `speech_field` is not",
        ],
    );
    user.types(&["check"]).exits_with(DONE).prints_beside_missing_programs(&["fine"]);
}

#[test]
fn a_tool_of_ava_that_speaks_nothing_of_its_own_has_avas_sentence() {
    let user = User::new();
    let silent = fixture("ava.yaml").replace("speech_field: atis_text", "");
    user.has(&user.project("config/ai-agent.yaml"), silent);
    user.types(&["import", "ava", "--write"]).exits_with(DONE);
    let expected = "result.fallback = \"I've fetched the result.\"\n";
    contains_all(user.gateway().as_bytes(), &[expected]);
    user.types(&["check"]).exits_with(DONE).prints_beside_missing_programs(&["fine"]);
}

#[test]
fn action_servers_become_openapi_servers_and_agents_become_profiles() {
    let user = User::new();
    user.has(&user.project("action_servers.json"), fixture("agents/action_servers.json"));
    user.has(&user.project("agent_configs/bob.json"), fixture("agents/agent_configs/bob.json"));
    user.types(&["import", "action-servers", "--write"]).exits_with(DONE);
    contains_all(
        user.gateway().as_bytes(),
        &[
            "[servers.email_mcp]\n",
            "kind = \"openapi\"\n",
            "url = \"http://localhost:8000\"\n",
            "arguments = \"coerce\"\nempty_strings = \"drop\"\n",
            "[profiles.bob]\n",
            "servers = [\"email_mcp\"]\n",
            "[servers.crm_mcp]\nkind = \"openapi\"\nurl = \"http://localhost:8001\"\nheaders = { Authorization = \"Bearer ${file:secrets/crm_mcp.Authorization}\" }\n",
        ],
    );
    let token = ("crm_mcp.Authorization".into(), 0o600, "hunter2-crm".into());
    assert_eq!(user.secrets(), [token]);
    user.types(&["check"]).exits_with(DONE).prints_beside_missing_programs(&["fine"]);
}

#[test]
fn openlegions_agents_share_equal_servers_and_have_a_profile_each() {
    let user = User::new();
    user.has(&user.project("config/agents.yaml"), fixture("agents.yaml"));
    let ran = user.types(&["import", "openlegion", "--write"]).exits_with(DONE);
    ran.prints(&["`naming = \"first\"`, `name_format = \"mcp_{server}_{tool}\"`"]);
    let gateway = user.gateway();
    contains_all(
        gateway.as_bytes(),
        &[
            "[servers.filesystem]\ncommand = \"mcp-server-filesystem\"\nargs = [\"/data\"]\n",
            "[servers.sqlite]\ncommand = \"mcp-server-sqlite\"\nargs = [\"--db\", \"/data/analytics.db\"]\n",
            "[servers.sqlite-writer]\ncommand = \"mcp-server-sqlite\"\nargs = [\"--db\", \"/data/drafts.db\"]\n",
            "[profiles.analyst]\nservers = [\"filesystem\", \"sqlite\"]\n",
            "[profiles.writer]\nservers = [\"filesystem\", \"sqlite-writer\"]\n",
            "another agent has a different server `sqlite`: the tools of this one are called mcp_sqlite-writer_TOOL",
        ],
    );
    assert_eq!(gateway.matches("[servers.").count(), 3);
    user.types(&["check"]).exits_with(DONE).prints_beside_missing_programs(&["3 server(s)"]);
}

#[test]
fn two_agents_with_colliding_names_have_a_profile_each() {
    let user = User::new();
    let agent = |server: &str| {
        format!("    mcp_servers:\n      - name: {server}\n        command: {server}\n")
    };
    let config = format!("agents:\n  sales.a:\n{}  sales-a:\n{}", agent("f"), agent("g"));
    user.has(&user.project("config/agents.yaml"), config);
    user.types(&["import", "openlegion", "--write"]).exits_with(DONE);
    contains_all(
        user.gateway().as_bytes(),
        &[
            "[profiles.sales-a]\nservers = [\"f\"]\n",
            "# it was called `sales-a`\n[profiles.sales-a-2]\nservers = [\"g\"]\n",
        ],
    );
}

#[test]
fn the_tool_of_a_context_belongs_to_the_server_with_the_longest_name() {
    let user = User::new();
    let config = "mcp:\n  servers:\n    a:\n      command: [a]\n    a_b:\n      command: [b]\ncontexts:\n  x:\n    tools: [mcp_a_b_c]\n";
    user.has(&user.project("config/ai-agent.yaml"), config);
    user.types(&["import", "ava"]).exits_with(DONE).prints(&[
        "own name of `mcp_a_b_c` is assumed to be `c`",
        "[servers.a_b.tools.c]\nname = \"mcp_a_b_c\"",
        "cwd = \"",
    ]);
}
