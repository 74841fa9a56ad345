//! The configurations of the systems that call MCP servers for many agents, as their documentation
//! gives them.

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
        "[servers.kb]\nurl = \"https://mcp.kb.example.org/mcp\"\nresource_vars = { customer_id = \"8675309\" }",
    ]);
    let user = User { variables: vec![("CRM_TOKEN", "t")], ..user };
    user.types(&["import", path, "--write"]).exits_with(DONE);
    let gateway = user.gateway();
    assert!(gateway.contains("\nheaders = { Authorization = \"Bearer ${env:CRM_TOKEN}\" }"));
    user.types(&["check"]).exits_with(DONE).prints(&["2 server(s)"]);
}

#[test]
fn avas_servers_keep_their_tool_names_and_its_contexts_become_profiles() {
    let user = User::new();
    user.has(&user.project("config/ai-agent.yaml"), fixture("ava.yaml"));
    user.types(&["import"]).exits_with(DONE).prints(&["ava", "1 server"]);
    user.types(&["import", "ava", "--write"]).exits_with(DONE);
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
    user.types(&["check"]).exits_with(DONE).prints(&["fine"]);
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
    user.types(&["check"]).exits_with(DONE).prints(&["fine"]);
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
            "[profiles.bob]\n",
            "servers = [\"email_mcp\"]\n",
        ],
    );
    user.types(&["check"]).exits_with(DONE).prints(&["fine"]);
}

#[test]
fn openlegions_agents_share_equal_servers_and_have_a_profile_each() {
    let user = User::new();
    user.has(&user.project("config/agents.yaml"), fixture("agents.yaml"));
    user.types(&["import", "openlegion", "--write"]).exits_with(DONE);
    let gateway = user.gateway();
    contains_all(
        gateway.as_bytes(),
        &[
            "[servers.filesystem]\ncommand = \"mcp-server-filesystem\"\nargs = [\"/data\"]\n",
            "[servers.sqlite]\ncommand = \"mcp-server-sqlite\"\nargs = [\"--db\", \"/data/analytics.db\"]\n",
            "[servers.sqlite-writer]\ncommand = \"mcp-server-sqlite\"\nargs = [\"--db\", \"/data/drafts.db\"]\n",
            "[profiles.analyst]\nservers = [\"filesystem\", \"sqlite\"]\n",
            "[profiles.writer]\nservers = [\"filesystem\", \"sqlite-writer\"]\n",
        ],
    );
    assert_eq!(gateway.matches("[servers.").count(), 3);
    user.types(&["check"]).exits_with(DONE).prints(&["3 server(s)"]);
}
