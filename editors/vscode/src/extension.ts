// Starts `regraft server` for Python files, and starts it again when its command changes.
import * as vscode from "vscode";
import { LanguageClient, LanguageClientOptions, ServerOptions } from "vscode-languageclient/node";

const FILES = "**/{*.py,*.rule,*.json,pyproject.toml,regraft.toml,regraft.lock.toml,.gitignore}";
let client: LanguageClient | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  context.subscriptions.push(
    vscode.commands.registerCommand("regraft.restart", restart),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration("regraft.enable") || event.affectsConfiguration("regraft.command")) {
        await restart();
      }
    }),
  );
  await start();
}

export async function deactivate(): Promise<void> {
  await client?.stop();
}

async function restart(): Promise<void> {
  await client?.dispose();
  client = undefined;
  await start();
}

async function start(): Promise<void> {
  if (!vscode.workspace.getConfiguration("regraft").get<boolean>("enable", true)) {
    return;
  }
  const [command, ...args] = await serverCommand();
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  const server: ServerOptions = { command, args, options: { cwd: folder } };
  const options: LanguageClientOptions = {
    documentSelector: [
      { language: "python", scheme: "file" },
      { language: "python", scheme: "untitled" },
      { language: "python", scheme: "vscode-notebook-cell" }, // the server says that it reads none
    ],
    synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher(FILES) },
  };
  client = new LanguageClient("regraft", "Regraft", server, options);
  try {
    await client.start();
  } catch (error) {
    const line = [command, ...args].join(" ");
    void vscode.window.showErrorMessage(
      `Regraft: \`${line}\` does not start (${error}). Install it with: pip install 'regraft[server]', or set regraft.command.`,
    );
  }
}

// The command of the settings, else the interpreter of the Python extension, else what is on the path.
async function serverCommand(): Promise<string[]> {
  const stated = vscode.workspace.getConfiguration("regraft").get<string[]>("command", []);
  if (stated.length > 0) {
    return stated;
  }
  const python = await interpreter();
  return python === undefined ? ["regraft", "server"] : [python, "-m", "regraft", "server"];
}

interface PythonExtension {
  environments?: { getActiveEnvironmentPath(resource?: vscode.Uri): { path: string } };
}

async function interpreter(): Promise<string | undefined> {
  const extension = vscode.extensions.getExtension<PythonExtension>("ms-python.python");
  const api = await extension?.activate();
  const resource = vscode.workspace.workspaceFolders?.[0]?.uri;
  const path = api?.environments?.getActiveEnvironmentPath(resource).path;
  // "python" stands for an environment that is not known yet
  return path && path !== "python" ? path : undefined;
}
