/** An agent's page is complete without this script, which only adds the button that copies its link. */

const button = document.getElementById("copy-link");

if (button !== null && navigator.clipboard !== undefined) {
	button.hidden = false;
	button.addEventListener("click", async () => {
		await navigator.clipboard.writeText(location.href);
		button.textContent = "Copied";
	});
}
