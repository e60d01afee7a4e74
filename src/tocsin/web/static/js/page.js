/** A page that the service renders is complete without this script, which updates its times and adds a button. */

import "./clock.js";
import { byId, setText } from "./dom.js";

const button = byId("copy-link");

if (button !== null && navigator.clipboard !== undefined) {
	button.hidden = false;
	button.addEventListener("click", async () => {
		await navigator.clipboard.writeText(location.href);
		setText(button, "Copied");
	});
}
