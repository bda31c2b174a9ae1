"""What users of `supermemory-bash` do, with nothing but base URL and key changed.

bash_tools.py URL KEY
"""

import asyncio
import sys
from typing import Any

import httpx
from supermemory_bash import create_bash  # pyright: ignore[reportMissingImports]

(URL, KEY), TAG = sys.argv[1:], "bash"
http = httpx.Client(base_url=URL, headers={"Authorization": f"Bearer {KEY}"}, trust_env=False)


def settled(tag: str) -> None:
    """Returns when all that was written is searchable."""
    listed = http.post("/v3/documents/list", json={"containerTags": [tag], "limit": 100}).json()
    for one in listed["memories"]:
        answer = http.get(f"/v3/documents/{one['id']}", params={"wait": 30}, timeout=60)
        assert answer.json()["status"] == "done", answer.text


async def session() -> Any:
    return await create_bash(api_key=KEY, base_url=URL, container_tag=TAG)


async def main() -> None:
    first = await session()

    async def told(command: str, shell: Any = first.bash) -> str:
        ran = await shell.exec(command)
        assert ran.exit_code == 0, (command, ran)
        return ran.stdout

    await told("mkdir -p /notes/deep && echo 'The heron fishes at dawn.' > /notes/heron.md")
    await told("echo 'Deep water.' > /notes/deep/ä.md; echo 'Of boats.' > /notes2.md")
    assert await told("echo 'It flies.' >> /notes/heron.md; cat /notes/heron.md") == (
        "The heron fishes at dawn.\nIt flies.\n"
    )
    await told("sed -i 's/dawn/noon/' /notes/heron.md")
    settled(TAG)
    for where in ("", " /notes/", " /notes/heron.md"):
        assert "/notes/heron.md:The heron fishes at noon." in await told(f"sgrep heron{where}")
    assert await told("sgrep heron /notes2.md") == ""
    await told("cp -r /notes /copy; mv /copy /kept; mv /notes/heron.md /heron.md; rm -r /notes")
    assert "no memories" in await told("cat /profile.md")
    await first.configure_memory_paths(["/kept/"])
    settled(TAG)

    second = (await session()).bash
    files = set((await told("find / -type f", second)).split()) - {"/"}
    kept = {"/kept/heron.md", "/kept/deep/ä.md", "/heron.md", "/notes2.md"}
    assert files == {*kept, "/profile.md"}, files
    assert await told("cat /heron.md", second) == "The heron fishes at noon.\nIt flies.\n"
    forgetful = await create_bash(api_key=KEY, base_url=URL, container_tag=TAG, cache_ttl_ms=0)
    for n in range(8):
        await told(f"echo line {n} >> /log.md", forgetful.bash)
    appended = "".join(f"line {n}\n" for n in range(8))
    assert await told("cat /log.md; rm /log.md", forgetful.bash) == appended
    await told("rm -r /kept /heron.md", second)
    listed = http.post("/v3/documents/list", json={"containerTags": [TAG]}).json()["memories"]
    assert [one["filepath"] for one in listed] == ["/notes2.md"], listed


asyncio.run(main())
