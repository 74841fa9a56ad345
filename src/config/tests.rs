use super::*;

#[test]
fn zz() {
    for text in [
        "[gateway\nlisten = \"127.0.0.1:1\"\n[servers.a]\ncommand = \"x\"\n",
        "[gateway]\nlisten = 127.0.0.1:1\n[servers.a]\ncommand = \"x\"\n",
        "[gateway]\nlisten = \"127.0.0.1:1\n[servers.a]\ncommand = \"x\"\n",
        "[gateway]\nlisten \"127.0.0.1:1\"\nnaming=\n[servers.a]\ncommand = \"x\"\nargs = [\"a\" \"b\"\ntimeout = \"1s\"\n[servers.b]\nurl = \"http://x/\"",
        "[servers.a]\ncommand = \"x\"\nargs = [\"a\", \"b\"\ntimeout = \"1s\"\n[servers.b]\nurl = \"http://x/\"",
        "[servers.a]\nurl = \"http://x/\"\nheaders = { Authorization = Bearer abc, \"X y\" = \"1\", }\nheaders = { A = 'secret' \ntimeout = \"3\"\n[servers.a]\ncommand = \"y\"",
        "[servers x]\ncommand = \"x\"\n[servers.b\n.]\ncommand = 3",
        "[servers.x]\ncommand = \"x\"\ncommand = \"y\"\n[servers.x]\nurl = 3",
        "[servers.x]\ncommand = \"\"\"x\nfoo = 1\n[servers.x]\nurl = 3",
        "mcpServers = { }\n[server.a]\n[servers.a]\ncomand = 'x'\ntimeout = 30\n[servers.b]\nurl='ftp://x'\nheaders = {Authorization = 3, Host='x', a=\"${env:NO}\", b = \"x\\ny\"}\nrate='100/m'\ntools.allow = 'x'\n[servers.a__b]\ncommand='a'\nurl='http://x'\n[servers.b.tools.x]\nname='a b'\n[servers.b.tools.z]\nname='q'\n[servers.b.tools.y]\nname='q'\nnam='q'",
    ] {
        eprintln!("=====\n{text}\n-----");
        let source =
            Source { name: "gateway.toml".into(), folder: "/etc/t".into(), bytes: text.into() };
        match Config::read(&source, &System) {
            Ok(c) => eprintln!("{c:#?}"),
            Err(e) => eprintln!("{e}\n{}", e.render(Color::Never)),
        }
    }
}
