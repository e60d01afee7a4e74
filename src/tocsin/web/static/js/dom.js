/** Elements from text and attributes. No markup is ever parsed, so no name can become markup. */

const SVG = "http://www.w3.org/2000/svg";

function build(node, attributes, children) {
	for (const [name, value] of Object.entries(attributes)) {
		if (value === null || value === undefined || value === false) continue;
		if (typeof value === "function") node.addEventListener(name, value);
		else node.setAttribute(name, value === true ? "" : value);
	}
	node.append(...children.filter((child) => child !== null && child !== undefined));
	return node;
}

export const el = (tag, attributes = {}, ...children) => build(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
	build(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);

/** Set a text if it differs; returns whether it did. */
export function setText(node, text) {
	if (node.textContent === text) return false;
	node.textContent = text;
	return true;
}

/** Set or remove an attribute if it differs. */
export function setAttribute(node, name, value) {
	if (value === null) node.removeAttribute(name);
	else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Make `parent` hold one element per item, in order; existing ones are updated in place. */
export function keyed(parent, items, keyOf, make, update) {
	const present = new Map([...parent.children].map((node) => [node.dataset.key, node]));
	const focused = document.activeElement;
	let place = parent.firstElementChild;
	for (const item of items) {
		const key = String(keyOf(item));
		let node = present.get(key);
		const isNew = node === undefined;
		try {
			node ??= make(item);
			update(node, item, isNew);
		} catch (error) {
			reportError(error); // and draw the others
			continue;
		}
		node.dataset.key = key;
		present.delete(key);
		if (node === place) place = place.nextElementSibling;
		else parent.insertBefore(node, place);
	}
	for (const node of present.values()) node.remove();
	// A browser drops the focus when an element moves.
	if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}
