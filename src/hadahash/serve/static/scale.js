// Photos of cameras are larger than the service needs, and often than it allows. They are scaled before they are sent.

const LARGE_BYTES = 2e6;
const LARGE_SIDE = 2000;
const LONG_SIDE = 1024;
const SHORT_SIDE = 256; // of panoramas
const QUALITY = 0.9;

// The image to send for a file: the file itself if it is small, or if the browser cannot decode it (HEIC, for example).
export async function scaled(file) {
  let image;
  try {
    image = await createImageBitmap(file); // upright
    const [short, long] = [image.width, image.height].sort((a, b) => a - b);
    if (file.size <= LARGE_BYTES && long <= LARGE_SIDE) return file;
    const smaller = await toJpeg(image, Math.min(1, Math.max(LONG_SIDE / long, SHORT_SIDE / short)));
    return smaller ?? file;
  } catch {
    return file;
  } finally {
    image?.close();
  }
}

function toJpeg(image, scale) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(image.width * scale);
  canvas.height = Math.round(image.height * scale);
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.fillStyle = "white"; // behind transparent parts, as in the service
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", QUALITY));
}
