/** Reports changes at once. Without it, the page still polls every half minute. */

const PATH = "/api/competition/events";
const AT_MOST_EVERY_MS = 1000;

/** `changed()` when a new board is published; `counted(trade)` for each swap. Closed while the page is hidden. */
export function follow({ changed, counted }) {
	let source = null;
	let timer = null;
	const soon = () => {
		timer ??= setTimeout(() => {
			timer = null;
			changed();
		}, AT_MOST_EVERY_MS);
	};
	const look = () => {
		if (document.hidden) {
			source?.close();
			source = null;
			return;
		}
		source ??= open();
	};
	const open = () => {
		const made = new EventSource(PATH);
		made.addEventListener("board", soon);
		made.addEventListener("withdrawn", soon);
		made.addEventListener("counted", (event) => counted(JSON.parse(event.data).trade));
		return made;
	};
	document.addEventListener("visibilitychange", look);
	look();
}
